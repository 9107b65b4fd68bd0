"""`model.report()` and `repr(model)`."""

import pbodl
from pbodl import Field, Schema

SCHEMA = Schema(label="click", fields=[Field("user", group="user"), Field("ad", group="ad")])
ROWS = [{"user": n % 7, "ad": n % 3, "click": int(n % 7 == n % 3)} for n in range(500)]


def learned(**options) -> pbodl.PairFM:
    model = pbodl.PairFM(SCHEMA, **options)
    model.learn(ROWS)
    return model


def test_a_trained_model_shows_its_curves(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text("".join(f'{{"user": {row["user"]}, "ad": {row["ad"]}, "click": {row["click"]}}}\n' for row in ROWS))
    model = pbodl.train(path, tmp_path / "run", schema=SCHEMA)
    for one in (model, pbodl.load(tmp_path / "run")):
        html = one.report().html
        assert "AUC, progressive" in html and "Features by field" in html and "user x ad" in html
        assert html.index("Features by field") < html.index("</main>")
    shown = model.report()._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and "<script" not in shown
    assert model.report().save(tmp_path / "page.html").read_text(encoding="utf-8") == model.report().html


def test_other_models_show_what_they_hold():
    html = learned().report().html
    assert "there are no curves" in html and "user x ad" in html
    model = pbodl.AdPredictor(SCHEMA)
    model.learn(ROWS)
    assert "Features by field" in model.report().html
    assert "report of PairFM(" in repr(learned().report())


def test_a_model_tells_its_size_and_state():
    assert repr(pbodl.FMMLP(SCHEMA)).startswith("FMMLP(2 fields, 0 rows learned, 0 features in ")
    assert repr(learned(negative_rate=0.25)) == (
        f"PairFM(2 fields, 500 rows learned, 10 features in {learned().table.nbytes / 1000:.3g} kB, "
        "recalibrated for negative_rate=0.25)"
    )
