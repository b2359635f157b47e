-- Destroy a body; the message's row stays.
WITH body AS (
    DELETE FROM message_bodies WHERE message_id = $1 AND body_at = $2
)
UPDATE messages SET expunged_at = coalesce(expunged_at, $3), size = 0 WHERE message_id = $1
