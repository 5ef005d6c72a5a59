-- A listing has an index of its own beside the primary key, and which of them is shorter is plain when
-- it is asked for, not when the table was empty. Listings are rare enough to be planned every time.
SET plan_cache_mode = force_custom_plan;
