"""dates: eleven forms of a date and one ISO form."""

import datetime as dt

import numpy as np
import pytest

from numpy_attention.training.tasks import dates


@pytest.mark.parametrize(
    ("form", "written"),
    [
        (0, "3rd of March, 1987"),
        (1, "3 March 1987"),
        (3, "March 3rd, 1987"),
        (5, "3-Mar-1987"),
        (6, "3.3.1987"),
        (7, "Tuesday, 3 March 1987"),
    ],
)
def test_date_is_written_in_its_form(form, written):
    assert dates.write_date(dt.date(1987, 3, 3), dates.FORMS[form]) == written


def test_held_out_pairs_of_form_and_date_never_appear_in_training():
    rng = np.random.default_rng(0)
    training = {source for source, _ in dates.draw_dates(5_000, rng, held_out=False)}
    held_out = [source for source, _ in dates.draw_dates(1_000, rng, held_out=True)]
    assert len(held_out) == 1_000
    assert not training & set(held_out)
    assert max(map(len, [*training, *held_out])) <= dates.LONGEST


def test_encoded_dates_decode_to_their_text():
    source_ids, target_ids, targets = dates.encode_dates([("3 May 1987", "1987-05-03"), ("May 21, 2003", "2003-05-21")])
    assert source_ids.shape == (2, 12)
    assert (source_ids[0, 10:] == 0).all()
    assert [dates.spell(row) for row in targets] == ["1987-05-03", "2003-05-21"]
    np.testing.assert_array_equal(target_ids[:, 1:], targets[:, :-1])
    assert (target_ids[:, 0] == dates.START).all()
    assert (targets[:, -1] == dates.STOP).all()
