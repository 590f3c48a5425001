"""The folder over HTTPS: both sides show a certificate, a site puts what is its own, and nothing is replaced."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread

import pytest

from distcondense.errors import RunFolderError, SettingsError
from distcondense.federated import parties
from distcondense.federated.https import HttpsFolder, served
from distcondense.privacy.verify import verify
from tests.federated.test_parties import NAMES, Region


class Authority:
    """Signs certificates of one day, for tests."""

    def __init__(self, folder: Path) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        self.folder, self.key = folder, ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")])
        self.certificate = self._signed(self.name, self.key.public_key(), authority=True)

    def _signed(self, subject: object, public: object, *, authority: bool = False) -> bytes:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization

        now = datetime.datetime.now(datetime.UTC)
        here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        signer = x509.SubjectKeyIdentifier.from_public_key(self.key.public_key())
        usage = x509.KeyUsage(True, False, False, False, False, authority, authority, False, False)
        built = (
            x509.CertificateBuilder()
            .subject_name(subject)  # type: ignore[arg-type]
            .issuer_name(self.name)
            .public_key(public)  # type: ignore[arg-type]
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)  # type: ignore[arg-type]
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(signer), critical=False)
            .add_extension(here, critical=False)
        )
        return built.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def tls(self, name: str, authority: Authority | None = None) -> Path:
        """A folder with a certificate for this name."""
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key, folder = ec.generate_private_key(ec.SECP256R1()), self.folder / f"tls-{name}"
        folder.mkdir()
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        (folder / "cert.pem").write_bytes(self._signed(subject, key.public_key()))
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (folder / "key.pem").write_bytes(private)
        (folder / "ca.pem").write_bytes((authority or self).certificate)
        return folder


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def address(tmp_path: Path, authority: Authority) -> Iterator[str]:
    shared = tmp_path / "shared"
    shared.mkdir()
    with served(shared, authority.tls("coordinator"), "127.0.0.1:0") as server:
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"https://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_site_puts_its_own_messages_once_and_reads_those_of_the_session(
    tmp_path: Path, authority: Authority, address: str
) -> None:
    east = HttpsFolder(address, authority.tls("east"))
    east.put(b"hello", "joined", "east")
    east.put(b"hello", "joined", "east")  # the same again
    assert east.has("joined", "east")
    assert (tmp_path / "shared" / "joined" / "east").read_bytes() == b"hello"
    assert east.get("joined", "east") == b"hello"
    with pytest.raises(RunFolderError, match="another message under its name"):
        east.put(b"other", "joined", "east")
    for names in [("joined", "north"), ("agreement",), ("rounds", "000000", "question"), ("rounds", "0", "east")]:
        with pytest.raises(RunFolderError, match="site's own"):
            east.put(b"forged", *names)
    (tmp_path / "secret").write_text("x")
    for names in [("..", "secret"), ("rounds", "..", "..", "secret"), ("release", "..", "joined", "east"), ("",)]:
        assert not east.has(*names)
    assert sorted(p.name for p in (tmp_path / "shared").rglob("*")) == ["east", "joined"]


def test_nobody_gets_in_without_a_certificate_of_the_authority(
    tmp_path: Path, authority: Authority, address: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    other = Authority(tmp_path / "elsewhere")
    stranger = HttpsFolder(address, other.tls("east", authority=authority))  # knows ours, is not known
    with pytest.raises(RunFolderError, match="certificate"):
        stranger.has("agreement")
    trusting = HttpsFolder(address, authority.tls("west", authority=other))  # does not know the coordinator
    with pytest.raises(RunFolderError, match="certificate"):
        trusting.has("agreement")
    with pytest.raises(SettingsError, match="no ca"):
        HttpsFolder(address, tmp_path)
    for place in ("http://somewhere", address):
        with pytest.raises(SettingsError, match="https"):
            parties.folder_at(place, None)


def test_three_sites_make_a_release_over_https(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, authority: Authority
) -> None:
    monkeypatch.setenv("DISTCONDENSE_STATE", str(tmp_path / "state"))
    region = Region(tmp_path, 300)
    tls = {name: authority.tls(name) for name in NAMES}
    with served(region.shared, authority.tls("coordinator"), "127.0.0.1:0") as server, ThreadPoolExecutor(4) as pool:
        serving = pool.submit(server.serve_forever, 0.01)
        at = f"https://127.0.0.1:{server.server_port}"
        for name in NAMES:
            parties.join(at, tmp_path / name, region.table(name), name, tls=tls[name])
        keys = region.fingerprint
        sites = [
            pool.submit(parties.round_, at, tmp_path / name, keys=keys, tls=tls[name], wait=True) for name in NAMES
        ]

        def alive() -> None:
            for site in sites:
                if site.done():
                    site.result()

        try:
            parties.round_(region.shared, region.own, wait=True, on_wait=alive)
            parties.close(region.shared, region.own)
            assert all("of a model of its rows" in site.result() for site in sites)
        finally:
            server.shutdown()
            serving.result()
    assert verify(region.own / "run").holds
