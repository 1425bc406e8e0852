"""What all tests share: the browser for pages, and what is said at the end of a run: how many wrong rules were planted,
and how many of them gradcheck killed."""

import sys
from pathlib import Path

import chrome
import pytest

sys.path.insert(0, str(Path(__file__).parent / "fixtures"))
from torch_cases import the_torch


@pytest.fixture(scope="session")
def torch():
    """PyTorch, or a skip; where it is required, a failure."""
    return the_torch()


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """One browser for all tests of pages."""
    if not (chrome.CHROMIUM and chrome.DRIVER):
        chrome.missing("chromium and chromedriver (Debian: apt-get install chromium chromium-driver)")
    driver = chrome.started(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


def pytest_terminal_summary(terminalreporter):
    mutants = [value for reports in terminalreporter.stats.values() for report in reports
               if getattr(report, "when", None) == "call" for name, value in report.user_properties if name == "mutant"]
    if mutants:
        terminalreporter.write_line(f"gradcheck: {mutants.count('planted')} wrong rules planted, "
                                    f"{mutants.count('killed')} caught, each by the name of its op and argument")
