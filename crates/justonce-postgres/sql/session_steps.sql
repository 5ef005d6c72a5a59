-- What the connections for our own statements need besides. Few records are named in one statement, and
-- each is found by its name; a listing goes by the index that it is written for. So it must be also
-- where the plan was made while the table was small, or before the server knew anything about it.
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
-- Where nothing else is possible, the price of what is switched off would look like a reason for it.
SET jit = off;
-- What is asked for again and again is planned once: how many records a statement names changes
-- nothing about how each is found.
SET plan_cache_mode = force_generic_plan;
