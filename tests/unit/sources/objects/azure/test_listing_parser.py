"""Listings of containers of Azure."""

from __future__ import annotations

from xml.sax.saxutils import escape

import pytest

from headrace.sources.objects.azure.listing_parser import parse_listing
from headrace.sources.objects.location import StoredObject


def listing(*blobs: str, marker: str = "") -> bytes:
    start = '\ufeff<?xml version="1.0" encoding="utf-8"?><EnumerationResults ContainerName="c"><Prefix>in/</Prefix>'
    return f"{start}<Blobs>{''.join(blobs)}</Blobs><NextMarker>{marker}</NextMarker></EnumerationResults>".encode()


def blob(name: str, etag: str = "0x8D1", more: str = "", properties: str = "") -> str:
    return (
        f"<Blob>{name}<Properties><Creation-Time>Mon, 23 Nov 2026 11:00:00 GMT</Creation-Time>"
        f"<Last-Modified>Mon, 23 Nov 2026 12:00:00 GMT</Last-Modified><Etag>{etag}</Etag><Content-Length>7</Content-Length>{properties}"
        f"</Properties>{more}<OrMetadata/></Blob>"
    )


def test_names_etags_sizes_and_times() -> None:
    keys = ["a", "a%2Fb", "ü", "<&>", " x ", "\U0001f600", "a//b", "a\tb"]
    objects, following = parse_listing(listing(*(blob(f"<Name>{escape(key)}</Name>") for key in keys), marker="2!x"))
    assert [one.key for one in objects] == keys
    assert objects[0] == StoredObject("a", "0x8D1", 7, 1_795_435_200_000)
    assert following == "2!x"


def test_a_name_that_xml_cannot_have_is_decoded() -> None:
    objects, following = parse_listing(listing(blob('<Name Encoded="true">a%EF%BF%BE%2F%2541</Name>', '"0x8D2"')))
    assert [(one.key, one.etag, following) for one in objects] == [("a\ufffe/%41", "0x8D2", None)]


def test_folders_are_left_out() -> None:
    blobs = [
        blob("<Name>in/a</Name>", properties="<ResourceType>directory</ResourceType>"),
        blob("<Name>in/b</Name>", more="<Metadata><hdi_isfolder>true</hdi_isfolder></Metadata>"),
        blob("<Name>in/c</Name>", properties="<ResourceType>file</ResourceType>", more="<Metadata><owner>ada</owner></Metadata>"),
    ]
    assert [one.key for one in parse_listing(listing(*blobs)).objects] == ["in/c"]


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"<html></html>", b"{}", listing(blob("<Name>a</Name>", "")), listing(blob("<Name></Name>"))]
)
def test_another_answer_is_an_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_listing(body)


def test_an_empty_listing_has_none() -> None:
    assert parse_listing(listing()) == ([], None)
