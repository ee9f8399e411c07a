from fiveways.extras import require

require("hub", __name__)
