from fiveways.extras import require

require("journal", __name__)
