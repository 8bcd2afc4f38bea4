import { type Request, type Response, Router } from 'express'
import { z } from 'zod'
import { findConflictBody } from '../../event-facts.ts'
import { findEvent, findEventBody, type WebhookEvent } from '../../event-queries.ts'
import { readRowId } from '../../filters.ts'
import { maskFor } from '../../personal-data.ts'
import { countText, dedupeLabels, durationText, followUpWords } from '../../words.ts'
import { addAction } from '../action.ts'
import { comparable, hexBody, prettyBody } from '../body-text.ts'
import { actionForm, copyButton, eventTag, sendTag, table } from '../components.ts'
import { diffOf } from '../diff.ts'
import { attribute, type Html, html, type Part } from '../html.ts'
import { missingPage, refusalPage, screen, sendPage } from '../page.ts'
import type { ScreenDeps } from '../routes.ts'
import { mayDecide, type Visit, visitOf } from '../visit.ts'

const tabs = {
  pretty: 'Pretty',
  raw: 'Raw bytes',
  headers: 'Headers',
  redeliveries: 'Redeliveries',
  conflicts: 'Conflicts',
} as const
type Tab = keyof typeof tabs
const noEvent = missingPage('No such event', html`No event has this number. <a href="/ops/events">Events</a>`)
const hidden = html`<p>Bodies are hidden from the role reader.</p>`

/** One event: what came, what was decided, what it caused, and its bytes. */
export function eventScreen(deps: ScreenDeps): Router {
  const router = Router({ caseSensitive: true, strict: true })
  const maskOf = (visit: Visit) => maskFor(visit.session.person.role, deps.config())

  router.get(
    '/ops/events/:id',
    screen(deps, async (visit, req) => {
      const id = readRowId(String(req.params.id))
      const found = id === undefined ? undefined : await findEvent(deps.reads, id)
      if (!found) return noEvent
      const mask = maskOf(visit)
      const event = mask.apply(found)
      const tab = z
        .enum(Object.keys(tabs) as [Tab, ...Tab[]])
        .catch('pretty')
        .parse(req.query.tab)
      const content = await contentOf(tab, event, visit, mask.isOn)
      return {
        title: `${event.type ?? 'Event'} ${event.event_id}`,
        place: 'events',
        main: html`${headOf(event, visit)}${tabsOf(event, tab)}${content}`,
      }
    }),
  )

  router.get('/ops/events/:id/body', async (req, res) => {
    const id = readRowId(req.params.id)
    const found = id && (await findEventBody(deps.reads, id))
    if (!found) return sendPage(deps, req, res, noEvent)
    if (maskOf(visitOf(res)).isOn) return sendPage(deps, req, res, refusalPage(403, 'Bodies are hidden from the role reader', ''))
    if (!found.body)
      return sendPage(
        deps,
        req,
        res,
        refusalPage(410, 'This body has been emptied', 'Retention keeps bodies for a limited time.'),
      )
    download(res, `event-${id}.bin`, found.body)
  })

  router.get('/ops/events/:id/conflicts/:conflict', async (req, res) => {
    const id = readRowId(req.params.id)
    const conflict = readRowId(req.params.conflict)
    const body = id && conflict && (await findConflictBody(deps.reads, id, conflict))
    if (!body) return sendPage(deps, req, res, missingPage('No such conflict', ''))
    if (maskOf(visitOf(res)).isOn) return sendPage(deps, req, res, refusalPage(403, 'Bodies are hidden from the role reader', ''))
    download(res, `event-${id}-conflict-${conflict}.bin`, body)
  })

  addAction(router, deps, '/ops/events/:id/replay', {
    roles: ['operator'],
    body: z.strictObject({}),
    async handle({ req, actor }) {
      const id = readRowId(String(req.params.id))
      const replayed = id ? await deps.replay(id, actor, 'page', requestOf(req)) : { outcome: 'not_found' as const }
      const to = `/ops/events/${id}`
      if (replayed.outcome === 'queued')
        return { to, notice: { text: 'The rules of this event run again. Keys that are taken send nothing.' } }
      if (replayed.outcome === 'read') return { to, notice: { text: `It was read anew: ${replayed.events.length} found in it.` } }
      return { page: refusalPage(409, 'Nothing was replayed', refusals[replayed.outcome]) }
    },
  })
  return router

  async function contentOf(tab: Tab, event: WebhookEvent, visit: Visit, isHidden: boolean): Promise<Html> {
    if (tab === 'headers') return headersOf(event)
    if (tab === 'redeliveries') return redeliveriesOf(event, visit)
    if (isHidden) return hidden
    const body = (await findEventBody(deps.reads, event.id))?.body ?? null
    if (tab === 'conflicts') return conflictsOf(event, body, visit)
    if (body === null) return html`<p>Retention has emptied this body; what it caused is kept.</p>`
    return tab === 'raw' ? hexBody(body) : prettyBody(body)
  }

  async function conflictsOf(event: WebhookEvent, body: Buffer | null, { view }: Visit): Promise<Html> {
    if (event.conflicts.length === 0) return html`<p>None: whenever this ID came again, its content was the same.</p>`
    const first = body === null ? undefined : comparable(body)
    const each = event.conflicts.map(async ({ id, received_at, times }) => {
      const bytes = await findConflictBody(deps.reads, event.id, id)
      const other = bytes && comparable(bytes)
      const lines = first === undefined || other === undefined ? undefined : diffOf(first, other)
      return html`<section><h2>${dedupeLabels.conflict.word}</h2><p>Came ${view.exactTime(received_at)}${times > 1 && `, ${countText(times)} times in all`}. Kept apart; nothing was sent for it.
<a href="/ops/events/${event.id}/body">This event's bytes</a> · <a href="/ops/events/${event.id}/conflicts/${id}">The other bytes</a></p>
${lines ? html`<pre class="body" tabindex="0">${lines.map(({ kind, text }) => diffLine(kind, text))}</pre>` : html`<p>They can't be shown beside each other: one of them is no text, or has been emptied.</p>`}</section>`
    })
    return html`${await Promise.all(each)}`
  }
}

const refusals = {
  not_found: 'No event has this number.',
  pending: 'It waits to be processed already.',
  unknown_source: 'Its source is not configured any more.',
  emptied: 'Retention has emptied its body.',
  still_unusable: 'It was read anew, and still no event can be read from it.',
}

const requestOf = (req: Request) => String(req.res?.locals.requestId ?? '')

function download(res: Response, name: string, body: Buffer): void {
  res
    .set({ 'Content-Disposition': `attachment; filename="${name}"`, 'Cache-Control': 'no-store' })
    .type('application/octet-stream')
    .send(body)
}

function diffLine(kind: 'same' | 'removed' | 'added', text: string): Html {
  if (kind === 'same') return html`  ${text}\n`
  return html`<span class="${kind}">${kind === 'added' ? '+ ' : '- '}${text}</span>\n`
}

const bases: Record<string, string> = {
  provider: 'ID from the provider',
  'message_id+type': 'ID made of the message ID and the kind of report',
  derived: 'ID derived from its content, as the provider gives none',
  body_hash: 'ID is the hash of the body, as the provider gives none',
  delivery: 'each delivery counts as an event, as the provider gives no ID',
}

function headOf(event: WebhookEvent, visit: Visit): Html {
  const { view } = visit
  const mode = event.livemode === null ? 'mode not said' : event.livemode ? 'live mode' : 'test mode'
  const secret =
    event.secret_index === null
      ? 'verified without a secret of ours'
      : html`verified by secret ${event.secret_index + 1}${event.secret_fingerprint && html` (fingerprint <code>${event.secret_fingerprint}</code>)`}`
  return html`<div class="title"><h1>${event.source} · ${event.type ?? 'no type'} · <span class="mono">${event.event_id}</span></h1>
<p><span id="event-status" data-live>${eventTag(event.status)}</span> ${mode}</p></div>
<p>Received ${view.exactTime(event.received_at)}${event.occurred_at && html` (created ${view.exactTime(event.occurred_at)})`} · ${secret} · ${bases[event.id_basis] ?? event.id_basis}${
    event.body_bytes !== null && ` · ${countText(event.body_bytes)} bytes`
  }</p>
<p>${decisionOf(event, visit)}</p>
${event.error !== null && html`<p class="error">${event.error}</p>`}
<div class="actions"><a class="button quiet" href="/ops/events/${event.id}/body">Body ⤓</a>${copyButton(event.event_id, 'Copy ID')}${copyButton('address', 'Copy link')}</div>
${causedOf(event, visit)}${replayOf(event, visit)}`
}

/** What was decided when it came, and when its rules ran; when they first did is known by what they asked for only. */
function decisionOf({ status, received_at, processed_at, redeliveries, sends }: WebhookEvent, { view }: Visit): Html {
  const again = redeliveries === 1 ? 'once' : `${countText(redeliveries)} times`
  const first = `${dedupeLabels.new.word}: the first time that this ID came${redeliveries > 0 ? `; it has come ${again} since` : ''}.`
  if (processed_at === null) return html`${first}${status === 'pending' && ' It waits for a worker.'}`
  if (status === 'ignored') return html`${first} No rule wanted it.`
  const firstAt = sends.length > 0 ? Math.min(...sends.map(({ at }) => at.getTime())) : undefined
  const took =
    firstAt !== undefined && ` Its first follow-up came ${durationText(firstAt - received_at.getTime())} after its receipt.`
  return html`${first}${took} Its rules last ran at ${view.exactTime(processed_at)}.`
}

function causedOf(event: WebhookEvent, { view }: Visit): Html {
  const caused = event.sends.map(
    ({ rule, outcome, error, dedupe_key, status, recipient }) =>
      html`<li>${status && sendTag(status)} ${dedupe_key !== null && html`<a href="/ops/sends/${encodeURIComponent(dedupe_key)}">${dedupe_key}</a>`}${
        recipient !== null && ` to ${recipient}`
      } <span class="muted">rule ${rule} ${followUpWords[outcome] ?? outcome}${error !== null && `: ${error}`}</span></li>`,
  )
  const others = event.object?.events.filter(({ id }) => id !== event.id) ?? []
  return html`<h2>What it caused</h2>${
    caused.length > 0
      ? html`<ul>${caused}</ul>`
      : html`<p>${event.report ? 'No send: it is a report about one.' : 'No send.'}</p>`
  }${event.report && reportOf(event.report, event)}${
    others.length > 0 &&
    html`<details><summary>Other events of <span class="mono">${event.object?.ref}</span> (${countText(others.length)})</summary><ul>${others.map(
      ({ id, type, event_id, received_at, status }) =>
        html`<li>${eventTag(status)} <a href="/ops/events/${id}">${type ?? 'no type'} <span class="mono">${event_id}</span></a> ${view.time(received_at)}</li>`,
    )}</ul></details>`
  }`
}

function reportOf(report: NonNullable<WebhookEvent['report']>, event: WebhookEvent): Part {
  const { kind, message_id, recipient, dedupe_key, parked } = report
  return html`<p>It reports <b>${kind}</b>${message_id !== null && html` of message <span class="mono">${message_id}</span>`}${recipient !== null && ` to ${recipient}`}. ${
    dedupe_key === null
      ? html`Not matched with a send: ${parked}. <a href="/ops/review?tab=reports#report-${event.id}">Unmatched reports</a>`
      : html`It belongs to <a href="/ops/sends/${encodeURIComponent(dedupe_key)}">${dedupe_key}</a>.`
  }</p>`
}

function replayOf(event: WebhookEvent, visit: Visit): Part {
  if (!mayDecide(visit)) return html`<p class="muted">Replaying it needs the role operator.</p>`
  const keys = event.sends.filter(({ status }) => status !== null)
  // The key of a rejected send is free.
  const free = keys.filter(({ status }) => status === 'rejected').length
  const prospect =
    keys.length > 0 &&
    free === 0 &&
    html` ${keys.length === 1 ? 'Its key is' : `Its ${countText(keys.length)} keys are`} taken, so <b>0 emails</b> would go out, unless its rules have changed.`
  const some =
    free > 0 &&
    html` ${free === 1 ? '1 key is' : `${countText(free)} keys are`} free, so <b>${countText(free)}</b> ${free === 1 ? 'email' : 'emails'} would go out, if its rules still want them.`
  return html`<details><summary>Replay…</summary>${actionForm({
    action: `/ops/events/${event.id}/replay`,
    fields: html`<p>Runs the follow-ups again.${prospect}${some} <a href="/ops/replays/new?event=${event.id}">See what it would do first</a></p><button class="main">Replay this event</button>`,
    byApi: { method: 'POST', path: `/v1/events/${event.id}/replay`, cli: ['events', 'replay', event.id] },
  })}</details>`
}

function tabsOf(event: WebhookEvent, current: Tab): Html {
  const count: Partial<Record<Tab, number>> = { redeliveries: event.redeliveries, conflicts: event.conflicts.length }
  return html`<h2 class="hidden">Content</h2><nav aria-label="Content"><ul class="tabs">${(
    Object.entries(tabs) as [Tab, string][]
  ).map(
    ([tab, label]) =>
      html`<li><a href="/ops/events/${event.id}?tab=${tab}"${attribute('aria-current', tab === current && 'true')}>${label}${
        count[tab] !== undefined && ` ${countText(count[tab])}`
      }</a></li>`,
  )}</ul></nav>`
}

function headersOf({ headers }: WebhookEvent): Html {
  return html`${table({
    caption: 'Headers that are kept; credentials and signatures are not',
    head: ['Name', 'Value'],
    rows: Object.entries(headers).map(
      ([name, value]) => html`<tr><th scope="row" class="mono">${name}</th><td class="mono">${value}</td></tr>`,
    ),
  })}`
}

function redeliveriesOf(event: WebhookEvent, { view }: Visit): Html {
  if (event.redeliveries === 0) return html`<p>None: it came once.</p>`
  const other = event.benign_variants
  const conflicts = event.conflicts.reduce((sum, { times }) => sum + times, 0)
  // Of conflicts beyond those that are kept it is only known that they came.
  const same = Math.max(0, event.redeliveries - other - conflicts)
  const after = event.last_redelivered_at && event.last_redelivered_at.getTime() - event.received_at.getTime()
  return html`<dl class="facts"><dt>${dedupeLabels.same_bytes.word}</dt><dd>${countText(same)}</dd>
<dt>${dedupeLabels.same_json.word}</dt><dd>${countText(other)}</dd><dt>${dedupeLabels.conflict.word}</dt><dd>${countText(conflicts)}</dd><dt>The last</dt><dd>${view.exactTime(event.last_redelivered_at)}${after !== null && `, ${durationText(after)} after the first`}</dd></dl>
<p>Each was answered 200 and caused nothing.</p>`
}
