SELECT body, trace FROM message_bodies WHERE message_id = $1 AND body_at = $2
