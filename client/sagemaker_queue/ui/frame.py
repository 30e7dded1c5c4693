"""The frame of every page: links to the pages, time of the last answer, dark mode and keyboard shortcuts."""

from __future__ import annotations

from collections.abc import Mapping

from nicegui import events, ui

from sagemaker_queue.jobs.formatting import visible
from sagemaker_queue.ui.tab import Tab

PLACES: Mapping[str, str] = {
    "/": "Fleet",
    "/queue": "Queue",
    "/projects": "Projects",
    "/usage": "Usage",
    "/what-if": "What if",
}
STORED = "smq-dark"  # key in the browser's local storage
# JavaScript expression that is true in dark mode: the stored choice, else the browser's preference.
DARK = (
    f"localStorage.getItem('{STORED}') === null ? matchMedia('(prefers-color-scheme: dark)').matches"
    f" : localStorage.getItem('{STORED}') === 'true'"
)
_KEYS = {
    "1 ... 5": "open a page, in their order",
    "/": "go to the filter of the queue",
    "d": "switch between light and dark",
    "?": "show this list",
    "Tab, Enter, arrows": "move through links, buttons and rows",
}
# The browser itself updates ages in the tables, so rows are sent again only after a change.
_AGES = """<script>
function smqAge(seconds) {
  const s = Math.max(0, Math.floor(seconds)), m = Math.floor(s / 60), h = Math.floor(m / 60), d = Math.floor(h / 24);
  const two = number => String(number).padStart(2, '0');
  if (d) return d + 'd' + (h % 24) + 'h';
  if (h) return h + 'h' + two(m % 60) + 'm';
  return m ? m + 'm' + two(s % 60) + 's' : s + 's';
}
function smqWhen(time, how) {
  if (time === null || time === undefined) return how || '';
  const away = time - Date.now() / 1000;
  if (/[0-9]/.test(how)) return how;  // an interval, such as "in 20m-3h"; the time only orders the rows
  if (how === 'at') return new Date(time * 1000).toISOString().slice(0, 16).replace('T', ' ');
  if (how === 'for') return 'for ' + smqAge(-away);
  if (how === 'ago') return smqAge(-away) + ' ago';
  return away > 0 ? how + ' ' + smqAge(away) : 'soon';
}
function smqNumber(number, decimals) {
  const digits = {minimumFractionDigits: decimals, maximumFractionDigits: decimals};
  return number === null || number === undefined ? '' : number.toLocaleString('en', digits);
}
// Handled in the browser, without a round trip to the server, so that the next keys already go to the filter.
document.addEventListener('keydown', event => {
  const filter = document.querySelector('[data-filter]');
  if (event.key === '/' && filter && !/^(INPUT|TEXTAREA)$/.test(event.target.tagName)) {
    event.preventDefault();
    filter.focus();
  }
});
</script>"""
_STYLE = """
.nicegui-content { max-width: 1500px; margin: 0 auto; width: 100%; padding: 12px 20px }
.smq-bar { background: #14324a; color: #fff }
.smq-bar a { color: #fff; text-decoration: none; padding: 6px 10px; border-radius: 6px }
.smq-bar a:hover, .smq-bar a[aria-current] { background: #ffffff2b }
a:focus-visible, button:focus-visible { outline: 3px solid #E69F00; outline-offset: 1px }
.smq-outage { background: #7a3b00; color: #fff; padding: 8px 20px; width: 100% }
.smq-faint { opacity: .75 }
.q-btn.disabled { opacity: .35 !important }
.smq-card { border: 1px solid #8884; border-radius: 8px; padding: 12px 16px; min-width: 210px }
.smq-log * { white-space: pre-wrap; overflow-wrap: anywhere }
.smq-why { white-space: normal; line-height: 1.35; font-size: 12px; padding-top: 4px }
.smq-why .ag-cell-value { overflow: hidden; max-height: 2.7em;
  display: -webkit-box; -webkit-line-clamp: 2; -webkit-box-orient: vertical }
.nicegui-aggrid { --ag-cell-horizontal-padding: 10px }
.body--dark .nicegui-content a { color: #8cc8f0 !important }
.body--dark .q-btn--outline, .body--dark .q-btn--flat { --q-primary: #8cc8f0 }
@media (max-width: 900px) { .smq-name { display: none } .smq-bar a { padding: 6px 6px } }
.smq-log { font-family: ui-monospace, monospace; font-size: 12px; white-space: pre-wrap; overflow-wrap: anywhere }
h1 { font-size: 1.4rem; font-weight: 600; line-height: 1.6 } h2 { font-size: 1.1rem; font-weight: 600 }
.nicegui-sub-pages { width: 100%; display: flex; flex-direction: column; gap: 10px }
.nicegui-aggrid a { color: inherit; text-decoration: underline }
.ag-layout-auto-height .ag-center-cols-viewport { min-height: 42px !important }
"""


def build_head() -> None:
    """Add styles and scripts to the page's head; must run before the page is sent."""
    ui.add_css(_STYLE)
    ui.add_head_html(_AGES)


def build_frame(tab: Tab) -> None:
    """Build the bar with links, and a line for outages below the bar."""
    ui.colors(primary="#0072B2", negative="#a33c00", positive="#00664b")
    darkness = ui.dark_mode(tab.dark)
    keys = _keys_dialog()

    def turn() -> None:
        tab.dark = darkness.value = not tab.dark
        ui.run_javascript(f"localStorage.setItem('{STORED}', '{str(tab.dark).lower()}')")

    with ui.header().classes("smq-bar items-center gap-1 py-1 no-wrap"):
        ui.label("SageMaker queue").classes("smq-name text-lg font-medium mr-4")
        links = {path: ui.link(name, path) for path, name in PLACES.items()}
        ui.space()
        fresh = ui.label().classes("text-sm smq-faint").props("role=status")
        ui.button(icon="contrast", on_click=turn).props('flat round color=white aria-label="light or dark"')
        ui.button(icon="keyboard", on_click=keys.open).props('flat round color=white aria-label="keys"')
    outage = ui.label().classes("smq-outage").props("role=alert")
    nowhere = ui.label().classes("smq-nowhere").props("role=status")

    def mark(path: str) -> None:
        page = path.partition("?")[0]
        is_known = page in PLACES or page.startswith("/job/")
        nowhere.set_text("" if is_known else f"There is no page {visible(page)}. This is the fleet.")
        nowhere.set_visibility(not is_known)
        for place, link in links.items():
            link.props("aria-current=page") if place == page else link.props(remove="aria-current")

    def refresh() -> None:
        outage.set_text(tab.poller.outage or "")
        outage.set_visibility(tab.poller.outage is not None)
        fresh.set_text(f"as of {tab.poller.at:%H:%M:%S} UTC")

    def pressed(event: events.KeyEventArguments) -> None:
        if not event.action.keydown or event.modifiers.ctrl or event.modifiers.alt or event.modifiers.meta:
            return
        key = str(event.key)
        if key in "12345" and len(key) == 1:
            ui.navigate.to(list(PLACES)[int(key) - 1])
        elif key == "d":
            turn()
        elif key == "?":
            keys.open()

    ui.keyboard(on_key=pressed)
    router = ui.context.client.sub_pages_router
    router.on_path_changed(mark)
    mark(router.current_path)
    refresh()
    ui.timer(1.0, refresh)


def _keys_dialog() -> ui.dialog:
    with ui.dialog() as dialog, ui.card():
        ui.label("Keys").classes("text-lg")
        with ui.grid(columns="auto auto"):
            for key, does in _KEYS.items():
                ui.label(key).classes("font-mono")
                ui.label(does)
        ui.button("Close", on_click=dialog.close)
    return dialog
