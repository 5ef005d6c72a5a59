-- For steps that wait for a record which somebody else has. Those who are told in time that it was
-- not applied can try again.
SET lock_timeout = '2s';
