import { onOneLine } from '../send-text.ts'
import type { createAssets } from './assets.ts'
import { attribute, type Html, html, type Part } from './html.ts'
import type { Shell } from './shell.ts'
import type { Visit } from './visit.ts'

/** The places of the header; a screen says which one it belongs to. */
type Place = 'overview' | 'review' | 'sends' | 'events' | 'sources' | 'audit' | 'settings' | 'sandbox'

/** What a screen gives; the frame is put around it. */
export interface Page {
  /** Of the tab and of history; starts with "Error:" on a page that says what is wrong. */
  title: string
  place?: Place
  main: Html
  status?: number
  /** What the tab's title says before all else, such as the worst cell of the overview. */
  alert?: string | undefined
  /** Also loads the library of the large charts. */
  withCharts?: boolean
  /** It answers a form: its address alone doesn't give it again. */
  isAnswer?: boolean
  /** Shows the places of the header to whoever it is. */
  withPlaces?: boolean
}

export interface Frame {
  assets: ReturnType<typeof createAssets>
  version: string
  hasSandbox: boolean
}

/** A page for a signed-in person; without a shell, as the database is away, it says so. */
export function signedInPage({ assets, version, hasSandbox }: Frame, visit: Visit, shell: Shell | undefined, page: Page): Html {
  const { settings, now } = visit.view
  const body = html`<a class="skip" href="#main">Skip to the content</a>
<header class="top">
  <a class="brand" href="/ops">Oncehook</a>
  ${placesNav(hasSandbox, page.place, reviewCount(shell))}
  <form class="search" role="search" action="/ops/search" method="get">
    <label class="hidden" for="search">Search sends and events</label>
    <input id="search" name="q" type="search" placeholder="Key, address, event ID, INV-1042…" autocomplete="off" spellcheck="false" maxlength="1000">
    <button>Search</button>
  </form>
  <details class="person"><summary>${visit.session.person.name}</summary>
    <div><p>Role ${visit.session.person.role}</p>
    <p data-script-only hidden><button type="button" data-pause>Pause live updates</button></p>
    <form action="/ops/sign-out" method="post"><button>Sign out</button></form></div>
  </details>
</header>
<section aria-label="Notices" id="banners" data-live>${banners(shell, visit, hasSandbox)}</section>
<p class="status" role="status" id="status">${shell?.notice && notice(shell.notice)}</p>
<main id="main" tabindex="-1"${attribute('data-no-refresh', page.isAnswer)}>${page.main}</main>
<footer><span>Oncehook ${version}</span>${shell && html`<span>Database time ${visit.view.exactTime(shell.databaseTime)}</span>`}
  <span>Times in <span data-zone>${settings.timeZone}</span></span><span class="live" data-stream hidden></span>
  <span><a href="/docs">API</a> · <a href="/openapi.json">OpenAPI</a></span></footer>${settings.shortcuts && keysHelp}`
  return documentOf({ assets }, page, body, {
    theme: settings.theme,
    shortcuts: settings.shortcuts,
    stream: shell !== undefined,
    time: now,
  })
}

const keys: readonly (readonly [key: string, does: string])[] = [
  ['/', 'Search'],
  ['g o', 'Overview'],
  ['g r', 'Needs a decision'],
  ['g s', 'Sends'],
  ['g e', 'Events'],
  ['j, k', 'Next and last row'],
  ['Enter', 'Open the row'],
  ['x', 'Tick the row'],
  ['1 to 9', 'Open the form of a decision; nothing is saved by it'],
  ['Ctrl+Enter', 'Save the form'],
  ['u', 'Times in UTC'],
  ['?', 'This help'],
]

/** Opened by its key. The shortcuts can be switched off in the settings, and it goes with them. */
const keysHelp = html`<dialog id="keys" aria-labelledby="keys-title"><h2 id="keys-title">Keys</h2><dl class="facts">${keys.map(
  ([key, does]) => html`<dt><kbd>${key}</kbd></dt><dd>${does}</dd>`,
)}</dl><form method="dialog"><button>Close</button></form></dialog>`

function placesNav(hasSandbox: boolean, current: Place | undefined, openDecisions: Part): Html {
  const places: [Place, string, Part][] = [
    ['overview', '/ops', 'Overview'],
    ['review', '/ops/review', html`Needs a decision <span id="review-count" data-live>${openDecisions}</span>`],
    ['sends', '/ops/sends', 'Sends'],
    ['events', '/ops/events', 'Events'],
    ['sources', '/ops/sources', 'Sources'],
    ['audit', '/ops/audit', 'Audit'],
    ['settings', '/ops/settings', 'Settings'],
    ...(hasSandbox ? ([['sandbox', '/ops/sandbox', 'Sandbox']] satisfies [Place, string, Part][]) : []),
  ]
  return html`<nav aria-label="Main"><ul>${places.map(
    ([place, href, label]) =>
      html`<li><a href="${href}"${attribute('aria-current', place === current && 'page')}>${label}</a></li>`,
  )}</ul></nav>`
}

/** A page for somebody of whom nothing is known: not signed in, or the database is away. */
export function plainPage(frame: Frame, page: Page): Html {
  const body = html`<a class="skip" href="#main">Skip to the content</a>
<header class="top"><a class="brand" href="/ops">Oncehook</a>${page.withPlaces && placesNav(frame.hasSandbox, page.place, null)}</header>
<main id="main" tabindex="-1" class="narrow">${page.main}</main>`
  return documentOf(frame, page, body, { theme: 'system', shortcuts: false, stream: false })
}

interface Manner {
  theme: 'system' | 'light' | 'dark'
  shortcuts: boolean
  stream: boolean
  time?: Date
}

function documentOf({ assets }: Pick<Frame, 'assets'>, page: Page, body: Html, manner: Manner): Html {
  return html`<!doctype html>
<html lang="en"${attribute('data-theme', manner.theme !== 'system' && manner.theme)}${attribute('data-shortcuts', manner.shortcuts)}${attribute('data-stream', manner.stream && '/ops/stream')}${attribute('data-now', manner.time?.toISOString())}>
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>${page.alert && `${page.alert} · `}${onOneLine(page.title)} · Oncehook</title>
<meta name="htmx-config" content='{"includeIndicatorStyles":false,"allowEval":false,"allowScriptTags":false,"selfRequestsOnly":true,"historyCacheSize":0}'>
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<link rel="stylesheet" href="${assets.pathOf('page.css')}">${page.withCharts && html`<link rel="stylesheet" href="${assets.pathOf('uplot.css')}">`}
<script src="${assets.pathOf('htmx.js')}" defer></script>
<script src="${assets.pathOf('page.js')}" defer></script>${
    page.withCharts &&
    html`<script src="${assets.pathOf('uplot.js')}" defer></script><script src="${assets.pathOf('charts.js')}" defer></script>`
  }
</head><body>${body}</body></html>`
}

const reviewCount = (shell: Shell | undefined) =>
  shell &&
  shell.needsReview > 0 &&
  html`<b class="count">${shell.needsReview === 1_000 ? '1,000+' : String(shell.needsReview)}</b>`

function banners(shell: Shell | undefined, { view }: Visit, hasSandbox: boolean): Part {
  if (!shell)
    return html`<p class="banner bad"><b>Can't reach the database.</b> Providers get 503 and will redeliver; nothing that was acknowledged is lost. This page works again when the database does.</p>`
  const { held, matching } = shell
  return [
    held &&
      html`<p class="banner bad"><b>Sending is paused</b> since ${view.time(held.since)}${held.by !== null && ` by ${held.by}`}: ${held.reason}. <a href="/ops/sending">What to do</a></p>`,
    matching === 'suggest' &&
      html`<p class="banner ask"><b>Reports that name only a recipient settle nothing by themselves</b> until a person has looked. <a href="/ops/review?tab=reports">Unmatched reports</a></p>`,
    hasSandbox && html`<p class="banner">Sandbox: no real email leaves this machine.</p>`,
  ]
}

function notice({ text, link }: NonNullable<Shell['notice']>): Html {
  return html`${text}${link && html` <a href="${link.href}">${link.label}</a>`}`
}
