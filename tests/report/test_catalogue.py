"""Catalogue files of a release: other people's validators accept them, and refuse what was changed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import distcondense as dc
from distcondense.errors import SettingsError
from distcondense.report.catalogue import catalogue
from distcondense.runs.release import DEMANDED, ReleaseInfo, missing_for_health_record
from tests.conftest import SMALL_TABLE, small_frame

INFO = ReleaseInfo.from_dict(
    {
        "title": "Admissions",
        "description": "Admissions of one hospital.",
        "identifier": "https://hospital.example/data/admissions",
        "publisher": "A hospital",
        "contact": "data@hospital.example",
        "licence": "https://creativecommons.org/licenses/by/4.0/",
        "url": "https://hospital.example/data/admissions/synthetic",
        "keywords": ["admissions"],
        "coding_systems": ["http://hl7.org/fhir/sid/icd-10"],
        "hdab": "A body",
        "hdab_contact": "https://hdab.example/contact",
        "health_category": "http://healthdataportal.eu/categories/EHRS",
        "population": "Adults of one region.",
        "published": "2026-01-01",
        "cite_as": "A hospital (2026). Admissions, synthetic.",
    }
)


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cohort = dc.Cohort.from_frame(small_frame(600), target="died", ignore=["months", "event"], schema=SMALL_TABLE)
    result = dc.condense(cohort, epsilon=8.0, ipc=5, threads=1)
    folder = tmp_path_factory.mktemp("run") / "run"
    replace(result, info=INFO).save(folder)
    return folder / "release"


def test_croissant_is_accepted_by_its_own_library_and_gives_the_rows(released: Path) -> None:
    croissant = pytest.importorskip("mlcroissant")
    dataset = croissant.Dataset(str(released / "croissant.json"))
    assert dataset.metadata.ctx.issues.errors == set()
    records = list(dataset.records("condensed"))
    assert len(records) == 10
    assert {name.partition("/")[2] for name in records[0]} >= {"age", "died", "distcondense_weight"}


def test_croissant_of_another_table_is_refused(released: Path, tmp_path: Path) -> None:
    croissant = pytest.importorskip("mlcroissant")
    whole = json.loads((released / "croissant.json").read_text())
    del whole["distribution"][0]["sha256"]
    (tmp_path / "croissant.json").write_text(json.dumps(whole))
    with pytest.raises(croissant.ValidationError):
        croissant.Dataset(str(tmp_path / "croissant.json"))


def test_the_responsible_ai_part_says_what_the_table_is_not(released: Path) -> None:
    whole = json.loads((released / "croissant.json").read_text())
    assert "end-to-end" in whole["rai:personalSensitiveInformation"]
    assert any("p-values" in words for words in whole["rai:dataLimitations"])


# What HealthDCAT-AP (release 5) asks of a data set that is not public, as shapes of our own.
SHAPES = """
@prefix sh: <http://www.w3.org/ns/shacl#> . @prefix dcat: <http://www.w3.org/ns/dcat#> .
@prefix dct: <http://purl.org/dc/terms/> . @prefix dcatap: <http://data.europa.eu/r5r/> .
@prefix adms: <http://www.w3.org/ns/adms#> . @prefix foaf: <http://xmlns.com/foaf/0.1/> .
@prefix vcard: <http://www.w3.org/2006/vcard/ns#> . @prefix csvw: <http://www.w3.org/ns/csvw#> .
@prefix h: <http://healthdataportal.eu/ns/health#> . @prefix : <urn:shapes:> .
:Dataset a sh:NodeShape ; sh:targetClass dcat:Dataset ;
  sh:property [sh:path dct:accessRights ; sh:minCount 1 ; sh:maxCount 1 ;
    sh:hasValue <http://publications.europa.eu/resource/authority/access-right/NON_PUBLIC>] ;
  sh:property [sh:path dcatap:applicableLegislation ; sh:minCount 1 ; sh:nodeKind sh:IRI] ;
  sh:property [sh:path dcat:distribution ; sh:minCount 1 ; sh:node :Distribution] ;
  sh:property [sh:path adms:sample ; sh:minCount 1 ; sh:node :Distribution] ;
  sh:property [sh:path dct:identifier ; sh:minCount 1] ;
  sh:property [sh:path dct:title ; sh:minCount 1] ; sh:property [sh:path dct:description ; sh:minCount 1] ;
  sh:property [sh:path dcat:theme ; sh:minCount 1] ; sh:property [sh:path dcat:keyword ; sh:minCount 1] ;
  sh:property [sh:path dct:type ; sh:minCount 1] ;
  sh:property [sh:path dct:provenance ; sh:minCount 1 ; sh:class dct:ProvenanceStatement] ;
  sh:property [sh:path dcat:contactPoint ; sh:minCount 1 ; sh:node :Contact] ;
  sh:property [sh:path h:hdab ; sh:minCount 1 ; sh:maxCount 1 ; sh:node :Agent] ;
  sh:property [sh:path dct:publisher ; sh:minCount 1 ; sh:maxCount 1 ; sh:node :Agent] ;
  sh:property [sh:path h:healthCategory ; sh:minCount 1 ; sh:nodeKind sh:IRI] .
:Distribution a sh:NodeShape ;
  sh:property [sh:path dcat:accessURL ; sh:minCount 1 ; sh:nodeKind sh:IRI] ;
  sh:property [sh:path dcatap:applicableLegislation ; sh:minCount 1 ; sh:nodeKind sh:IRI] .
:Agent a sh:NodeShape ; sh:class foaf:Agent ; sh:property [sh:path foaf:name ; sh:minCount 1] ;
  sh:property [sh:path dcat:contactPoint ; sh:minCount 1 ; sh:maxCount 1 ; sh:node :Contact] .
:Contact a sh:NodeShape ; sh:class vcard:Kind ;
  sh:or ([sh:property [sh:path vcard:hasEmail ; sh:minCount 1]] [sh:property [sh:path vcard:hasURL ; sh:minCount 1]]) .
:Table a sh:NodeShape ; sh:targetObjectsOf csvw:tableSchema ; sh:property [sh:path csvw:column ; sh:minCount 1] .
:Column a sh:NodeShape ; sh:targetClass csvw:Column ;
  sh:property [sh:path csvw:name ; sh:minCount 1 ; sh:maxCount 1] ; sh:property [sh:path csvw:title ; sh:minCount 1] ;
  sh:property [sh:path dct:description ; sh:minCount 1] ;
  sh:property [sh:path csvw:datatype ; sh:minCount 1 ; sh:maxCount 1] .
"""


def conforms(record: dict[str, Any]) -> bool:
    pyshacl, rdflib = pytest.importorskip("pyshacl"), pytest.importorskip("rdflib")
    graph = rdflib.Graph().parse(data=json.dumps(record), format="json-ld")
    shapes = rdflib.Graph().parse(data=SHAPES, format="turtle")
    return bool(pyshacl.validate(graph, shacl_graph=shapes)[0])


def test_the_health_record_has_all_that_a_data_set_that_is_not_public_needs(released: Path) -> None:
    record = json.loads((released / "healthdcat.jsonld").read_text())
    assert conforms(record)
    assert int(record["healthdcatap:numberOfRecords"]["@value"]) >= 0  # the noisy one that the statement holds
    assert len(record["csvw:table"]["csvw:tableSchema"]["csvw:column"]) == len(
        SMALL_TABLE.without(["months", "event"]).names
    )


@pytest.mark.parametrize("lost", ["dct:publisher", "healthdcatap:hdab", "adms:sample", "dct:provenance", "dcat:theme"])
def test_a_health_record_that_lacks_something_is_refused(released: Path, lost: str) -> None:
    record = json.loads((released / "healthdcat.jsonld").read_text())
    del record[lost]
    assert not conforms(record)


def test_without_the_custodians_words_there_is_no_health_record() -> None:
    assert missing_for_health_record(ReleaseInfo()) == list(DEMANDED)
    assert missing_for_health_record(INFO) == []


def test_the_entry_for_a_registry_says_no_epsilon_without_its_guarantee(released: Path) -> None:
    entry = json.loads((released / "deployment.json").read_text())
    assert entry["privacy_definition"]["epsilon"].endswith("(end-to-end)")
    assert entry["privacy_definition"]["unit"] == "row"


def test_catalogue_files_are_bound_to_the_statement(released: Path) -> None:
    assert {"croissant.json", "healthdcat.jsonld", "deployment.json"} <= set(
        json.loads((released / "privacy.json").read_text())["files"]
    )


def test_an_unknown_entry_and_a_number_for_a_text_are_refused() -> None:
    with pytest.raises(SettingsError, match="the nearest is 'publisher'"):
        ReleaseInfo.from_dict({"publishr": "x"})
    with pytest.raises(SettingsError, match="must be a text"):
        ReleaseInfo.from_dict({"publisher": 3})


def test_the_same_release_has_the_same_catalogue_files(released: Path) -> None:
    """They hold no date of their own and nothing of the machine: `catalogue` is a function of the release."""
    cohort = dc.Cohort.from_frame(small_frame(300), target="died", ignore=["months", "event"], schema=SMALL_TABLE)
    result = dc.condense(cohort, method="published", noise=False, ipc=2, steps=2, threads=1)
    digests = {"condensed.csv": "0" * 64}
    assert catalogue({"condensed": result}, digests) == catalogue({"condensed": result}, digests)
