"""Maven's settings.xml and proxy variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.storage.maven import MavenSettings, Proxy, Repository, java_options, read_maven_settings

CENTRAL = Repository("central")


def read(tmp_path: Path, text: str = "", **environment: str) -> MavenSettings:
    file = tmp_path / ".m2" / "settings.xml"
    file.parent.mkdir(exist_ok=True)
    if text:
        file.write_text(text)
    return read_maven_settings(environment, tmp_path)


def test_without_settings_everything_is_as_maven_has_it(tmp_path: Path) -> None:
    settings = read(tmp_path)
    assert settings.local_repository == tmp_path / ".m2" / "repository"
    assert settings.repositories == (CENTRAL,)
    assert settings.proxies == ()


def test_a_mirror_of_everything_replaces_central_and_brings_its_password(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        """<settings xmlns="http://maven.apache.org/SETTINGS/1.2.0">
        <localRepository>${user.home}/repo</localRepository>
        <servers><server><id>corp</id><username>me</username><password>${env.TOKEN}</password></server></servers>
        <mirrors>
          <mirror><id>other</id><mirrorOf>internal</mirrorOf><url>https://other.example/</url></mirror>
          <mirror><id>corp</id><mirrorOf>*,!local</mirrorOf><url>https://corp.example/maven</url></mirror>
        </mirrors></settings>""",
        TOKEN="s3cret",
    )
    assert settings.repositories == (Repository("corp", "https://corp.example/maven", "me", "s3cret"),)
    assert settings.local_repository == tmp_path / "repo"


def test_a_blocked_mirror_is_not_used(tmp_path: Path) -> None:
    text = """<settings><mirrors><mirror><id>b</id><mirrorOf>*</mirrorOf><url>http://0.0.0.0/</url>
    <blocked>true</blocked></mirror></mirrors></settings>"""
    assert read(tmp_path, text).repositories == (CENTRAL,)


def test_repositories_of_active_profiles_come_before_central(tmp_path: Path) -> None:
    text = """<settings><profiles>
      <profile><id>on</id><repositories><repository><id>r</id><url>https://r.example</url></repository></repositories></profile>
      <profile><id>off</id><repositories><repository><id>x</id><url>https://x.example</url></repository></repositories></profile>
      </profiles><activeProfiles><activeProfile>on</activeProfile></activeProfiles></settings>"""
    assert read(tmp_path, text).repositories == (Repository("r", "https://r.example"), CENTRAL)


def test_the_first_active_proxy_serves_both_protocols(tmp_path: Path) -> None:
    text = """<settings><proxies>
      <proxy><active>false</active><host>no.example</host></proxy>
      <proxy><active>true</active><host>p.example</host><port>3128</port><nonProxyHosts>localhost|*.corp</nonProxyHosts></proxy>
      </proxies></settings>"""
    settings = read(tmp_path, text, https_proxy="http://ignored.example:1")
    assert [(p.protocol, p.host, p.port) for p in settings.proxies] == [
        ("http", "p.example", 3128),
        ("https", "p.example", 3128),
    ]
    assert settings.proxies[0].skip == ("localhost", "*.corp")


def test_proxy_variables_count_when_maven_has_none(tmp_path: Path) -> None:
    settings = read(tmp_path, HTTPS_PROXY="http://me:p%40ss@p.example:3128", no_proxy="localhost, .corp")
    assert settings.proxies == (Proxy("https", "p.example", 3128, "me", "p@ss", ("localhost", "*.corp")),)


def test_proxies_as_java_takes_them() -> None:
    assert java_options((Proxy("https", "p.example", 3128, "me", "pw", ("a", "b")),)) == [
        "-Dhttps.proxyHost=p.example",
        "-Dhttps.proxyPort=3128",
        "-Dhttps.proxyUser=me",
        "-Dhttps.proxyPassword=pw",
        "-Dhttp.nonProxyHosts=a|b",
    ]


@pytest.mark.parametrize("text", ["<settings>", "not xml at all"])
def test_a_broken_file_is_as_good_as_none(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text).repositories == (CENTRAL,)
