-- What connections for the statements of the store need besides. Steps find records by id, and lists
-- use the indexes that they are written for, even if a plan was made while the table was small or
-- without statistics.
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
-- The cost of switched-off plans must not trigger it.
SET jit = off;
-- Statements are planned once: the number of records in a statement does not change the plan.
SET plan_cache_mode = force_generic_plan;
