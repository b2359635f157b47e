-- Whether a commit waits until it is on disk: on, off, local, remote_write or remote_apply.
SELECT current_setting('synchronous_commit')
