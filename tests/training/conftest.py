"""These tests run real ranks."""

import lablib

lablib.warm_up()
