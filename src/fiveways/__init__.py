"""A messaging hub that speaks five wire protocols: UMQ in two dialects, LRPM, RPC over MQTT, and NQ."""
