import { Router } from 'express'
import { z } from 'zod'
import { listEvents } from '../../event-queries.ts'
import { eventFilter, sendFilter } from '../../filters.ts'
import { maskFor } from '../../personal-data.ts'
import { explainNoHit, findAnything, searchBodiesAlone } from '../../search.ts'
import { listSends } from '../../send-queries.ts'
import { countText } from '../../words.ts'
import { errorSummary, field } from '../components.ts'
import { type ReadFilter, readFilter } from '../filter.ts'
import { type Html, html } from '../html.ts'
import type { Page } from '../layout.ts'
import { type Asked, bodiesForm, eventTable, noHitPart } from '../no-hit.ts'
import { screen } from '../page.ts'
import { sendPath } from '../reopening.ts'
import type { ScreenDeps } from '../routes.ts'
import { sendTable } from '../send-table.ts'

/** The first ones of each list; the rest is on its own screen. */
const SHOWN = '20'
const DAY_MS = 86_400_000

/** What the search box of the header finds: one hit opens at once, several are lists, none says where the chain broke. */
export function searchScreen(deps: ScreenDeps): Router {
  const router = Router({ caseSensitive: true, strict: true })
  const schema = z.strictObject({ q: sendFilter(deps.now).shape.q, bodies: z.literal('1').optional() })

  router.get(
    '/ops/search',
    screen(deps, async (visit, req) => {
      const mask = maskFor(visit.session.person.role, deps.config())
      const read = readFilter(req, schema, mask)
      const heading = html`<h1>Search</h1>${read.problems && errorSummary(read.problems)}${searchForm(read)}`
      if (!read.filter) return { title: 'Error: Search', status: 400, main: heading }
      const q = read.filter.q?.trim() ?? ''
      if (q === '') return { title: 'Search', main: heading }
      const asked = { q, visit, mask }
      if (read.filter.bodies) return bodiesPage(deps, heading, asked)

      const found = await findAnything(deps.reads, q, mask.isOn)
      if (found.kind === 'event') return { to: `/ops/events/${found.id}` }
      if (found.kind === 'send') return { to: sendPath(found.key) }
      const main =
        found.kind === 'nothing'
          ? noHitPart(await explainNoHit(deps.reads, q, mask.isOn), asked)
          : await listsPart(deps, found.kind, asked)
      return { title: 'Search', main: html`${heading}${main}` }
    }),
  )
  return router
}

function searchForm({ given, problems = [] }: ReadFilter<unknown>): Html {
  const hint = 'A key or three characters of it, an address, a message ID, an event ID, or what an event names, such as INV-1042'
  return html`<form class="filters" action="/ops/search" method="get">${field({
    name: 'q',
    label: 'Search sends and events',
    type: 'search',
    value: given.q,
    maxLength: 1_000,
    hint,
    problems,
  })}<button class="main">Search</button></form>`
}

async function listsPart(
  { reads, now, sendsPerMinute }: ScreenDeps,
  kind: 'sends' | 'events',
  { q, visit, mask }: Asked,
): Promise<Html> {
  const filter = { ...sendFilter(now).parse({ q, limit: SHOWN }), withoutAddresses: mask.isOn }
  const { sends, ...ofSends } = mask.apply(await listSends(reads, filter, sendsPerMinute))
  // Several sources may have an event of this ID.
  const named = { [kind === 'events' ? 'event_id' : 'ref']: q }
  const { events, ...ofEvents } = mask.apply(await listEvents(reads, eventFilter(now).parse({ ...named, limit: SHOWN })))
  const more = (next: string | null, path: string, name: string) =>
    next !== null && html`<p><a href="${path}">All of these ${name}</a></p>`
  return html`${
    sends.length > 0 &&
    html`<h2>Sends</h2>${sendTable(sends, visit, { caption: 'Sends that match, the latest first' })}${more(ofSends.next_cursor, `/ops/sends?${new URLSearchParams({ q })}`, 'sends')}`
  }${
    events.length > 0 &&
    html`<h2>Events that name it</h2>${eventTable(events, visit, 'Events that name it, the latest first')}${more(ofEvents.next_cursor, `/ops/events?${new URLSearchParams(named)}`, 'events')}`
  }`
}

/** Events of the last day whose bytes hold the text: those that no rule wanted have no references to be found by. */
async function bodiesPage({ reads, now }: ScreenDeps, heading: Html, { q, visit, mask }: Asked): Promise<Page> {
  if (mask.isOn) return { title: 'Search', main: html`${heading}<p>Searching bodies needs role operator.</p>` }
  const hits = await searchBodiesAlone(reads, q, new Date(now().getTime() - DAY_MS))
  if (!hits) {
    const main = html`${heading}<p class="answer">Another search of bodies is under way: there is one at a time.</p>${bodiesForm(q, 'Search raw bodies of the last 24 h again')}`
    return { title: 'Error: Search', status: 409, main }
  }
  const { events, is_complete, searched } = hits
  const through = `Looked through the bodies of ${countText(searched)} events of the last 24 h${is_complete ? '' : ', the latest; there are more, which were not looked through'}.`
  const list =
    events.length === 0
      ? html`<p class="answer">No body has this text${is_complete ? '' : ' among them'}.</p>`
      : eventTable(mask.apply(events), visit, 'Events whose bodies have the text, the latest first')
  return { title: 'Search', main: html`${heading}<p>${through}</p>${list}` }
}
