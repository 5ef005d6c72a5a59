-- For steps that wait for a locked record. A step that fails as not applied can be retried.
SET lock_timeout = '2s';
