-- Which index of a list is shorter depends on the table as it is now. Lists are rare enough to be
-- planned every time.
SET plan_cache_mode = force_custom_plan;
