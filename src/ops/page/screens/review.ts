import { Router } from 'express'
import { z } from 'zod'
import { listEvents } from '../../event-queries.ts'
import { findEvidence } from '../../evidence.ts'
import { cursor, eventFilter, limit, sendKey } from '../../filters.ts'
import { maskFor } from '../../personal-data.ts'
import { countReview, listReview, type ReviewCounts, reviewFilter } from '../../review-queries.ts'
import { bulkForm, bulkScreen } from '../bulk.ts'
import { byApiDetails, copyButton, errorSummary, pager } from '../components.ts'
import { decisionActions } from '../decision-actions.ts'
import { decisionForms } from '../decision-forms.ts'
import { readFilter } from '../filter.ts'
import { type Html, html, type Part } from '../html.ts'
import type { Page } from '../layout.ts'
import { logScreen } from '../log-upload.ts'
import { eventTable } from '../no-hit.ts'
import { screen } from '../page.ts'
import { sendPath } from '../reopening.ts'
import { reportsScreen, reportsTab } from '../reports.ts'
import { deskCounts, deskList, deskTabs, evidencePart } from '../review-desk.ts'
import type { ScreenDeps } from '../routes.ts'
import { mayDecide, type Visit } from '../visit.ts'

const deskFilter = reviewFilter.extend({ key: sendKey.optional(), tab: z.literal('decisions').optional() })

/** What needs a person: the sends whose outcome nobody knows, reports that found no send, and events that could not be used. */
export function reviewScreen(deps: ScreenDeps): Router {
  const router = Router({ caseSensitive: true, strict: true })
  const events = z.strictObject({
    tab: z.literal('events'),
    limit,
    cursor: cursor(z.tuple([z.string().regex(/^\d{1,18}$/)])).optional(),
  })
  router.get(
    '/ops/review',
    screen(deps, async (visit, req) => {
      if (req.query.tab === 'reports') return reportsTab(deps, visit, req)
      if (req.query.tab === 'events') return eventsTab(deps, visit, readFilter(req, events))
      const read = readFilter(req, deskFilter)
      if (read.filter) return desk(deps, visit, read.filter)
      const main = html`<h1>Needs a decision</h1>${deskTabs('decisions')}${errorSummary(read.problems)}<p><a href="/ops/review">All</a></p>`
      return { title: 'Error: Needs a decision', place: 'review', status: 400, main }
    }),
  )
  router.use(decisionActions(deps), bulkScreen(deps), reportsScreen(deps), logScreen(deps))
  return router
}

async function desk(deps: ScreenDeps, visit: Visit, filter: z.output<typeof deskFilter>): Promise<Page> {
  const mask = maskFor(visit.session.person.role, deps.config())
  const { now } = visit.view
  const { sends, next_cursor } = mask.apply(await listReview(deps.reads, filter, now))
  const counts = await countReview(deps.reads)
  const { suggestion } = filter
  const cursorText = new URL(visit.address, 'http://page').searchParams.get('cursor') ?? undefined
  const place = { suggestion, cursor: cursorText }
  // The one that was asked for, if it is still open; else the oldest that is listed.
  const asked = filter.key === undefined ? undefined : await findEvidence(deps.reads, filter.key, now)
  const [oldest] = sends
  const isAsked = asked?.status === 'needs_review'
  const evidence = mask.apply(isAsked ? asked : oldest && (await findEvidence(deps.reads, oldest.dedupe_key, now)))
  const at = sends.findIndex(({ dedupe_key }) => dedupe_key === evidence?.dedupe_key)
  const next = sends[at + 1]?.dedupe_key ?? sends.find((_, index) => index !== at)?.dedupe_key
  const gone =
    filter.key !== undefined &&
    !isAsked &&
    html`<p class="banner">${asked ? html`<a href="${sendPath(filter.key)}">${filter.key}</a> needs no decision any more.` : html`No send has the key ${filter.key}.`}</p>`
  const main = html`<div class="title"><div class="name"><h1>Needs a decision</h1>${deskCounts(counts, place, visit)}</div>
<div class="actions"><a class="button" href="/ops/review/log">Upload sending log (CSV)</a></div></div>${deskTabs('decisions')}${gone}
<p class="new-rows" data-new-rows hidden><a href="${visit.address}"></a></p>
${
  evidence
    ? html`<div class="${filter.key === undefined ? 'panes' : 'panes open'}"><section class="pane" aria-label="Sends">${
        sends.length === 0 ? html`<p>None of these is left.</p>` : deskList(sends, place, evidence.dedupe_key, visit)
      }${pager(visit.address, next_cursor)}${mayDecide(visit) && sends.length > 0 && bulkForm(suggestion, counts)}</section>
<section class="pane" aria-label="Evidence and decision"><h2 class="key">${evidence.dedupe_key}</h2>${evidencePart(evidence, visit)}
${decisionForms(evidence, { suggestion, next }, visit)}
<p class="actions"><a href="${sendPath(evidence.dedupe_key)}">Its whole story</a>${copyButton('address', 'Copy link')}</p>
${byApiDetails({ method: 'GET', path: `/v1/sends/${encodeURIComponent(evidence.dedupe_key)}/evidence`, cli: ['sends', 'show', evidence.dedupe_key] })}</section></div>`
    : emptyDesk(counts, suggestion !== undefined)
}`
  return { title: 'Needs a decision', place: 'review', main }
}

const emptyDesk = ({ open }: ReviewCounts, isFiltered: boolean): Html =>
  isFiltered && open > 0
    ? html`<p>Nothing that needs a decision has this suggestion. <a href="/ops/review">Show all</a></p>`
    : html`<p>Nothing needs a decision.</p><p class="muted">What comes here: sends whose call ended without a clear answer. Most are settled by a delivery report within seconds.</p>`

async function eventsTab(
  deps: ScreenDeps,
  visit: Visit,
  {
    filter,
    problems,
  }: { filter?: { limit: number; cursor?: [string] | undefined }; problems?: { path: string; message: string }[] },
): Promise<Page> {
  const title = 'Quarantined and failed events'
  const heading = html`<h1>Needs a decision</h1>${deskTabs('events')}`
  if (!filter)
    return { title: `Error: ${title}`, place: 'review', status: 400, main: html`${heading}${errorSummary(problems ?? [])}` }
  const mask = maskFor(visit.session.person.role, deps.config())
  const wanted = eventFilter(deps.now).parse({ status: 'failed,quarantined' })
  const { events, next_cursor } = mask.apply(await listEvents(deps.reads, { ...wanted, ...filter }))
  const list: Part =
    events.length === 0
      ? html`<p>None.</p>`
      : html`<p>A failed one had a follow-up that could not be made; a quarantined one could not be read. Both are kept, and can be replayed when the cause is mended.</p>
${eventTable(events, visit, title)}`
  return {
    title,
    place: 'review',
    main: html`${heading}${list}${pager(visit.address, next_cursor)}${byApiDetails({ method: 'GET', path: '/v1/events?status=failed,quarantined', cli: ['events', 'list', '--status', 'failed,quarantined'] })}`,
  }
}
