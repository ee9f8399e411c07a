from fiveways.extras import require

require("pipeline", __name__)
