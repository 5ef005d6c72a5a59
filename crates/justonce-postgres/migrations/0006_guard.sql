-- For the caller's own tables: BEFORE UPDATE FOR EACH ROW EXECUTE FUNCTION guard_fence_1(). The
-- table has a column `fence`, and an update with an older fence than the row's changes nothing.
CREATE FUNCTION @schema@.guard_fence_1() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.fence < OLD.fence THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END $$;
