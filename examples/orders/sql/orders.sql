-- The order service's own table. Nothing in it keeps an order from being written twice: that is
-- what the recovery points are for, which are committed with it.
CREATE TABLE IF NOT EXISTS orders (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    state text NOT NULL CHECK (state IN ('open', 'done', 'rolled-back'))
);
