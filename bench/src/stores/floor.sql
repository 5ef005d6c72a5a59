\set n random(1, 9000000000000000000)
INSERT INTO floor VALUES (sha256(:n::text::bytea), 1, decode(repeat('78', 150), 'hex')) ON CONFLICT DO NOTHING;
UPDATE floor SET state = 2, body = decode(repeat('78', 350), 'hex') WHERE id = sha256(:n::text::bytea);
