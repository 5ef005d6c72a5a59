-- Nobody holds a record for longer than it takes to commit, or somebody does who keeps it: that is
-- waited for on other connections, so that these are free for other records.
SET lock_timeout = '100ms';
