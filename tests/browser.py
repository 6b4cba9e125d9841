"""Headless Chromium, for the tests of the page, and to take the page's picture:

    python -m tests.browser docs/index.html docs/live.png --height 720
"""
import argparse
import base64
import contextlib
import json
import pathlib
import re
import shutil
import tempfile
import time

FLAGS = ("--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --hide-scrollbars "
         "--disable-background-networking --disable-component-update --disable-sync "
         "--disable-extensions").split()
KEYS = {"left": "\ue012", "up": "\ue013", "right": "\ue014", "down": "\ue015", "escape": "\ue00c",
        "enter": "\ue007", "end": "\ue010", "home": "\ue011"}


@contextlib.contextmanager
def browser(*flags):
    """A Chromium with a profile of its own, as a selenium driver that logs the console and every
    request."""
    from selenium import webdriver
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for flag in (*FLAGS, *flags, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        # Given the path of the driver, selenium does not look for one on the network.
        service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
        driver = webdriver.Chrome(options, service)
        try:
            yield driver
        finally:
            driver.quit()


def facts_of(html):
    """The JSON that a page holds."""
    return json.loads(re.search(r'id="facts">(.*?)</script>', html, re.DOTALL)[1])


def resize(driver, width, height):
    """Set the size of the page in CSS pixels."""
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
        "width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})


def opened(driver, path):
    """Open a page, wide and light, and wait until it is drawn, or says why it cannot be; return
    the driver, whose logs begin there."""
    driver.get("about:blank")           # the page before says no more
    driver.get_log("browser"), driver.get_log("performance")
    resize(driver, 1280, 900)
    prefer(driver, "light")
    load(driver, path.resolve().as_uri())
    return driver


def load(driver, address):
    """Load an address anew, also where only what follows its # is another, and wait until the page
    is drawn, or says why it cannot be."""
    from selenium.webdriver.support.wait import WebDriverWait
    driver.get("about:blank")
    driver.get(address)
    WebDriverWait(driver, 20, 0.02).until(lambda driver: driver.execute_script(
        "return 'ready' in document.documentElement.dataset "
        "|| !document.getElementById('trouble').hidden"))


def prefer(driver, theme):
    """Prefer a theme, and reduced motion, so that a click finds its aim."""
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
        {"name": "prefers-color-scheme", "value": theme},
        {"name": "prefers-reduced-motion", "value": "reduce"}]})


def chosen(driver, theme):
    """Choose a theme on the page: light, dark, or "" for the one that is preferred."""
    driver.execute_script("byId('theme').value = arguments[0];"
                          "byId('theme').dispatchEvent(new Event('change'))", theme)


def asked(driver):
    """What the page has asked of the network, as Chromium tells it."""
    said = [json.loads(line["message"])["message"] for line in driver.get_log("performance")]
    return [event["params"] for event in said if event["method"] == "Network.requestWillBeSent"]


def of(driver, script):
    """The value of a JavaScript expression, in which $ and $$ find elements."""
    return driver.execute_script(
        "const $ = (x) => document.querySelector(x), $$ = (x) => [...document.querySelectorAll(x)];"
        f"return {script}")


def press(driver, key):
    """Press one of KEYS where the focus is."""
    driver.switch_to.active_element.send_keys(KEYS[key])


def parse(argv=None):
    """The settings on the command line."""
    parser = argparse.ArgumentParser(prog="tests.browser")
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("png", type=pathlib.Path)
    parser.add_argument("--height", type=int, help="default: the whole page")
    return parser.parse_args(argv)


def main():
    """Take a picture of a page."""
    s = parse()
    with browser() as driver:
        whole = of(opened(driver, s.page), "document.body.scrollHeight")
        resize(driver, 1280, s.height or whole)         # all of it is drawn
        time.sleep(3)       # a live page computes the rest while nobody types
        clip = {"x": 0, "y": 0, "width": 1280, "height": s.height or whole, "scale": 1}
        shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png", "clip": clip})
        s.png.write_bytes(base64.b64decode(shot["data"]))
    print(f"{s.png}: {s.png.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
