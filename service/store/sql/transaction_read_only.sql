-- Whether writes are refused: a standby, or a server that was set so.
SELECT current_setting('transaction_read_only')::boolean
