-- Most locks end with a commit soon. Longer ones are waited for on other connections, so that these
-- stay free for other records.
SET lock_timeout = '100ms';
