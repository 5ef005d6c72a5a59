-- Small tools of the steps. Functions carry a number in their names: a release that needs another
-- behaviour brings another number, so that old and new programs can run at once.

-- The server's time.
CREATE FUNCTION @schema@.millis_1() RETURNS bigint LANGUAGE sql VOLATILE
RETURN floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint;

-- A line of the history. Words are escaped, so a blank separates them.
CREATE FUNCTION @schema@.note_1(at bigint, fence bigint, what text) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN at::text || ' ' || fence::text || ' ' || what;

-- The first note is kept for good, then the newest.
CREATE FUNCTION @schema@.noted_1(notes text[], note text) RETURNS text[]
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN cardinality(notes) < 16 THEN notes || note
            ELSE notes[1:1] || notes[3:] || note END;

-- How many notes make room for one more.
CREATE FUNCTION @schema@.crowded_1(notes text[]) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN cardinality(notes) < 16 THEN 0 ELSE 1 END;

-- Exponential back-off with jitter: from half of the whole delay to all of it.
CREATE FUNCTION @schema@.back_off_1(first bigint, longest bigint, attempt bigint, jitter bigint)
RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    whole numeric := least(
        first::numeric * 2::numeric ^ least(greatest(attempt - 1, 0), 63), longest::numeric);
    half numeric := div(whole, 2);
BEGIN
    RETURN half + div((whole - half) * jitter, 4294967295);
END $$;

-- After a crash the sequence of fences jumps beyond all that may have been given and forgotten.
-- It must be on disk before anybody goes on, so whoever jumps commits in the ordinary way.
CREATE FUNCTION @schema@.jump_1() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    far_beyond CONSTANT bigint := 4294967296;
BEGIN
    LOCK TABLE @schema@.no_crash_since IN SHARE ROW EXCLUSIVE MODE;
    PERFORM 1 FROM @schema@.no_crash_since;
    IF FOUND THEN
        RETURN false;
    END IF;
    PERFORM setval('@schema@.fences', (SELECT last_value FROM @schema@.fences) + far_beyond);
    INSERT INTO @schema@.no_crash_since VALUES (true);
    RETURN true;
END $$;

-- A record's wakers listen on a channel with the name of the schema.
CREATE FUNCTION @schema@.wake_1(id bytea) RETURNS void LANGUAGE sql VOLATILE
RETURN pg_notify(@channel@, encode(id, 'hex'));
