"""Catalogue files of a release: other people's validators accept them, and refuse what was changed."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import distcondense as dc
from distcondense.data.schema import Column
from distcondense.errors import SettingsError
from distcondense.privacy.binding import file_hash
from distcondense.report.catalogue import catalogue, described
from distcondense.runs.release import DEMANDED, ReleaseInfo, missing_for_health_record
from tests.conftest import SMALL_SCHEMA, SMALL_TABLE, small_frame

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


def test_croissant_is_accepted_by_its_own_library_and_gives_the_rows(
    released: Path, caplog: pytest.LogCaptureFixture
) -> None:
    croissant = pytest.importorskip("mlcroissant")
    dataset = croissant.Dataset(str(released / "croissant.json"))
    assert dataset.metadata.ctx.issues.errors == set()
    assert caplog.messages == []  # a context that is not the standard's would be told here
    records = list(dataset.records("condensed"))
    assert len(records) == 10
    assert {name.partition("/")[2] for name in records[0]} >= {"age", "died", "distcondense_weight"}


def copied(released: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(released, tmp_path / "release"))


def test_croissants_own_library_refuses_a_changed_table_and_one_without_a_hash(released: Path, tmp_path: Path) -> None:
    croissant = pytest.importorskip("mlcroissant")
    folder = copied(released, tmp_path)
    table = folder / "condensed.csv"
    table.write_text(table.read_text().replace("1", "2", 1))
    with pytest.raises(croissant.GenerationError, match=r"Download\(condensed.csv\)") as refused:
        list(croissant.Dataset(str(folder / "croissant.json")).records("condensed"))
    assert "is not identical with the reference" in str(refused.value.__cause__)
    whole = json.loads((folder / "croissant.json").read_text())
    del whole["distribution"][0]["sha256"]
    (folder / "croissant.json").write_text(json.dumps(whole))
    with pytest.raises(croissant.ValidationError):
        croissant.Dataset(str(folder / "croissant.json"))


def test_the_responsible_ai_part_says_what_the_table_is_not(released: Path) -> None:
    whole = json.loads((released / "croissant.json").read_text())
    assert "end-to-end" in whole["rai:personalSensitiveInformation"]
    assert any("p-values" in words for words in whole["rai:dataLimitations"])
    assert whole["rai:hasSyntheticData"] is True
    assert whole["prov:wasDerivedFrom"] == {"@id": INFO.identifier}
    assert {name for name in whole if name.startswith("rai:")} >= {
        "rai:dataBiases",
        "rai:dataCollection",
        "rai:dataSocialImpact",
        "rai:dataUseCases",
    }


def test_every_column_is_described_with_its_public_bounds_or_categories_in_full_and_its_unit(released: Path) -> None:
    (records,) = json.loads((released / "croissant.json").read_text())["recordSet"]
    said = {field["name"]: field["description"] for field in records["field"]}
    table = json.loads((released / "healthdcat.jsonld").read_text())["csvw:table"]["csvw:tableSchema"]["csvw:column"]
    dictionary = {column["csvw:name"]: column["dct:description"]["@value"] for column in table}
    assert (
        dictionary["died"] == "The outcome; one of: 0, 1"
    )  # of patients; what the rows' own column is, is another thing
    assert "In a small table" in said["died"]
    for column in SMALL_SCHEMA.columns:
        assert said[column.name] == dictionary[column.name] == described(column)
        for value in column.categories or (column.low, column.high):
            assert (f"{value:g}" if isinstance(value, float) else str(value)) in said[column.name]
    whole = Column("weight", "continuous", low=2.0, high=300.0, unit="kg", meaning="Body weight on admission")
    assert described(whole) == "Body weight on admission; from 2 to 300 kg"


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
  sh:property [sh:path h:healthCategory ; sh:minCount 1 ; sh:nodeKind sh:IRI] ;
  sh:property [sh:path csvw:table ; sh:minCount 1 ; sh:node :Table] .
:Distribution a sh:NodeShape ;
  sh:property [sh:path dcat:accessURL ; sh:minCount 1 ; sh:nodeKind sh:IRI] ;
  sh:property [sh:path dcatap:applicableLegislation ; sh:minCount 1 ; sh:nodeKind sh:IRI] .
:Agent a sh:NodeShape ; sh:class foaf:Agent ; sh:property [sh:path foaf:name ; sh:minCount 1] ;
  sh:property [sh:path dcat:contactPoint ; sh:minCount 1 ; sh:maxCount 1 ; sh:node :Contact] .
:Contact a sh:NodeShape ; sh:class vcard:Kind ;
  sh:or ([sh:property [sh:path vcard:hasEmail ; sh:minCount 1]] [sh:property [sh:path vcard:hasURL ; sh:minCount 1]]) .
:Table a sh:NodeShape ; sh:class csvw:Table ;
  sh:property [sh:path csvw:tableSchema ; sh:minCount 1 ; sh:maxCount 1] ;
  sh:property [sh:path (csvw:tableSchema csvw:column) ; sh:minCount 1] .
:Column a sh:NodeShape ; sh:targetClass csvw:Column ;
  sh:property [sh:path csvw:name ; sh:minCount 1 ; sh:maxCount 1] ; sh:property [sh:path csvw:title ; sh:minCount 1] ;
  sh:property [sh:path dct:description ; sh:minCount 1] ;
  sh:property [sh:path csvw:datatype ; sh:minCount 1 ; sh:maxCount 1] .
"""


@cache
def shapes() -> Any:
    return pytest.importorskip("rdflib").Graph().parse(data=SHAPES, format="turtle")


def conforms(record: dict[str, Any]) -> bool:
    pyshacl, rdflib = pytest.importorskip("pyshacl"), pytest.importorskip("rdflib")
    graph = rdflib.Graph().parse(data=json.dumps(record), format="json-ld")
    return bool(pyshacl.validate(graph, shacl_graph=shapes())[0])


def test_the_health_record_has_all_that_a_data_set_that_is_not_public_needs(released: Path) -> None:
    record = json.loads((released / "healthdcat.jsonld").read_text())
    assert conforms(record)
    assert int(record["healthdcatap:numberOfRecords"]["@value"]) >= 0  # the noisy one that the statement holds
    described = record["csvw:table"]["csvw:tableSchema"]["csvw:column"]
    assert [one["csvw:name"] for one in described] == list(SMALL_TABLE.without(["months", "event"]).names)
    for sample in record["adms:sample"]:
        file = released / sample["dcat:accessURL"]["@id"].rpartition("/")[2]
        assert sample["spdx:checksum"]["spdx:checksumValue"]["@value"] == file_hash(file)


COLUMN = "csvw:table/csvw:tableSchema/csvw:column/0"


@pytest.mark.parametrize(
    "lost",
    [
        "dct:accessRights", "dct:accessRights/@id", "dcatap:applicableLegislation", "dcat:distribution",
        "dcat:distribution/dcatap:applicableLegislation", "dcat:distribution/dcat:accessURL", "adms:sample",
        "adms:sample/0/dcatap:applicableLegislation", "dct:title", "dct:description", "dct:identifier", "dcat:theme",
        "dcat:keyword", "dct:type", "dct:provenance", "dcat:contactPoint", "dcat:contactPoint/vcard:hasEmail",
        "dcat:contactPoint/@type", "healthdcatap:hdab", "healthdcatap:hdab/dcat:contactPoint",
        "healthdcatap:hdab/dcat:contactPoint/vcard:hasURL", "dct:publisher", "dct:publisher/dcat:contactPoint",
        "dct:publisher/foaf:name", "healthdcatap:healthCategory", "csvw:table", "csvw:table/csvw:tableSchema",
        "csvw:table/csvw:tableSchema/csvw:column", f"{COLUMN}/csvw:name", f"{COLUMN}/csvw:title",
        f"{COLUMN}/dct:description", f"{COLUMN}/csvw:datatype",
    ],
)  # fmt: skip
def test_a_health_record_that_lacks_something_is_refused(released: Path, lost: str) -> None:
    record = json.loads((released / "healthdcat.jsonld").read_text())
    *path, last = lost.split("/")
    place = record
    for name in path:
        place = place[int(name)] if isinstance(place, list) else place[name]
    del place[last]
    assert not conforms(record)


@pytest.mark.parametrize("twice", ["healthdcatap:hdab", "dct:publisher", f"{COLUMN}/csvw:datatype"])
def test_a_health_record_with_two_of_what_there_is_one_of_is_refused(released: Path, twice: str) -> None:
    record = json.loads((released / "healthdcat.jsonld").read_text())
    place = record["csvw:table"]["csvw:tableSchema"]["csvw:column"][0] if twice.startswith(COLUMN) else record
    name = twice.rpartition("/")[2]
    other = {"@id": "xsd:date"} if name == "csvw:datatype" else {**place[name], "foaf:name": "Another"}
    place[name] = [place[name], other]
    assert not conforms(record)


def test_access_rights_of_a_public_data_set_are_refused(released: Path) -> None:
    text = (released / "healthdcat.jsonld").read_text()
    assert not conforms(json.loads(text.replace("access-right/NON_PUBLIC", "access-right/PUBLIC")))


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
