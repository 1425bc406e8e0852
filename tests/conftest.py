"""What the tests say at the end of a run: how many wrong rules were planted, and how many of them gradcheck killed."""


def pytest_terminal_summary(terminalreporter):
    mutants = [value for reports in terminalreporter.stats.values() for report in reports
               if getattr(report, "when", None) == "call" for name, value in report.user_properties if name == "mutant"]
    if mutants:
        terminalreporter.write_line(f"gradcheck: {mutants.count('planted')} wrong rules planted, "
                                    f"{mutants.count('killed')} caught, each by the name of its op and argument")
