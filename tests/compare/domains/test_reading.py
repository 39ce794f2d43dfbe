"""What several domains have in common, in words."""

from dataclasses import replace

from compare.domains.cases import two_domains
from compare.owner.cases import with_estimate
from tpkd.compare.domains.reading import domain_sentences

SKILLS = {"ce": 1.0, "kd": 1.5, "tpkd": 3.0}
ABOVE = {"seed_low": 0.1, "seed_high": 0.2, "sample_low": 0.1, "sample_high": 0.2}
BELOW = {"seed_low": -0.2, "seed_high": -0.1, "sample_low": -0.2, "sample_high": -0.1}
OPEN = {"seed_low": -0.2, "seed_high": 0.1, "sample_low": -0.2, "sample_high": 0.1}


def said(kd, tpkd):
    """Sentences for KD and TPKD with these intervals in the two domains."""
    records = two_domains(SKILLS, SKILLS)
    domains = tuple(
        with_estimate(with_estimate(found, "kd", **kd[place]), "tpkd", **tpkd[place])
        for place, found in enumerate(records.domains)
    )
    return " ".join(domain_sentences(replace(records, domains=domains)))


def test_what_holds_everywhere_is_said():
    text = said((ABOVE, ABOVE), (BELOW, BELOW))
    assert "Above CE in every domain: KD." in text
    assert "Below CE in every domain: TPKD." in text
    assert "TPKD has the highest mean in every domain." in text


def test_what_does_not_is_said_too():
    text = said((ABOVE, BELOW), (ABOVE, OPEN))
    assert "No method is above CE in every domain, and none is below it in every domain." in text
    assert "Above CE in one domain and below it in another: KD." in text
    different = two_domains(SKILLS, {"ce": 1.0, "kd": 3.0, "tpkd": 1.2})
    assert "No method has the highest mean in every domain: TPKD in toys; KD in texts." in " ".join(
        domain_sentences(different)
    )


def test_the_papers_numbers_are_neither_confirmed_nor_contradicted():
    assert domain_sentences(two_domains(SKILLS, SKILLS))[-1].startswith("Not the paper's protocol in toys and texts")


def test_domains_without_a_common_reference_are_not_compared_with_it():
    assert not any("CE" in sentence for sentence in domain_sentences(two_domains({"ce": 1.0}, {"kd": 1.0})))
