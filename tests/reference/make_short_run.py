"""Write model/same/published.json anew, after a change that is meant to give other results:

    python -m tests.reference.make_short_run
"""
import json

from model.same.runs import FILE, float32_run, short_run
from model.settings import RECIPES

if __name__ == "__main__":
    in_float32 = {recipe: float32_run(recipe)[0] for recipe in RECIPES}
    FILE.write_text(json.dumps(short_run() | {"float32": in_float32}, indent=1) + "\n",
                    encoding="utf-8")
