-- Keep what is queued of some messages in the queue until the transaction ends: a delivery that is just being recorded is
-- waited for, and is finished afterwards.
SELECT delivery_id FROM deliveries WHERE message_id = ANY ($1::text[]) ORDER BY delivery_id FOR KEY SHARE
