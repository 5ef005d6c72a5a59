-- What the connections for our own steps need besides. Few records are named in one statement, and
-- each is found by its name: a plan that was made while the table was small must do so too.
SET enable_hashjoin = off;
SET enable_mergejoin = off;
-- What is asked for again and again is planned once: how many records a statement names changes
-- nothing about how each is found.
SET plan_cache_mode = force_generic_plan;
