import { Router } from 'express'
import { z } from 'zod'
import { busyOrThrow, findRun, planRun, type Run, startRun, stopRun } from '../../../events/runs.ts'
import type { Forecast } from '../../../follow-ups/forecast.ts'
import { findEvent } from '../../event-queries.ts'
import { readRowId, readRunId, replayFilter } from '../../filters.ts'
import { listRuns } from '../../run-queries.ts'
import { countText, durationText, eventLabels, prospectWords, sendLabels } from '../../words.ts'
import { addAction } from '../action.ts'
import { actionForm, live, table } from '../components.ts'
import { type Html, html, type Part } from '../html.ts'
import { missingPage, refusalPage, screen } from '../page.ts'
import type { ScreenDeps } from '../routes.ts'
import { mayDecide, type Visit } from '../visit.ts'

const noRun = missingPage(
  'No such replay',
  html`There is none under this ID, or its plan has expired. <a href="/ops/replays">Replays</a>`,
)

/** Replays of many events: what one would do, starting it, how far it is, and stopping it. */
export function replaysScreen(deps: ScreenDeps): Router {
  const router = Router({ caseSensitive: true, strict: true })
  const filterSchema = z
    .strictObject({
      source: z.string().optional(),
      type: z.string().optional(),
      status: z.string().optional(),
      since: z.string().optional(),
      until: z.string().optional(),
      event_id: z.string().optional(),
    })
    .transform(({ status, event_id, ...rest }, context) => {
      const parsed = replayFilter(deps.now).safeParse({
        ...rest,
        ...(status !== undefined && { status: status.split(',') }),
        ...(event_id !== undefined && { event_ids: [event_id] }),
      })
      if (parsed.success) return parsed.data
      for (const { path, message } of parsed.error.issues) context.addIssue({ code: 'custom', path, message })
      return z.NEVER
    })

  router.get(
    '/ops/replays',
    screen(deps, async ({ view }) => {
      const runs = await listRuns(deps.reads)
      const row = (
        run: Run,
      ) => html`<tr><td><a href="/ops/replays/${run.id}">${countText(run.events)} events</a></td><td>${states[run.state]}</td>
<td>${run.created_by}</td><td>${view.time(run.created_at)}</td><td class="number">${countText(run.done)}</td></tr>`
      const list = table({
        caption: 'The newest first',
        head: ['Replay', 'State', 'By', 'Planned', { figures: 'Done' }],
        rows: runs.map(row),
      })
      const empty = html`<p>None yet. <a href="/ops/events">Filter events</a> and choose <i>Replay these…</i></p>`
      return { title: 'Replays', place: 'events', main: html`<h1>Replays</h1>${runs.length > 0 ? list : empty}` }
    }),
  )

  router.get(
    '/ops/replays/new',
    screen(deps, async (visit, req) => {
      const id = readRowId(String(req.query.event))
      const event = id && (await findEvent(deps.reads, id))
      if (!event) return missingPage('No such event', html`<a href="/ops/events">Events</a>`)
      const filter = {
        source: event.source,
        event_id: event.event_id,
        status: event.status === 'pending' ? 'processed' : event.status,
      }
      const form = mayDecide(visit) ? planForm(filter) : html`<p class="muted">It needs the role operator.</p>`
      return {
        title: 'Replay one event',
        place: 'events',
        main: html`<h1>Replay ${event.type ?? 'event'} <span class="mono">${event.event_id}</span></h1>
<p>First a dry run: it says which emails would go out, and changes nothing.</p>${form}`,
      }
    }),
  )

  addAction(router, deps, '/ops/replays', {
    roles: ['operator'],
    body: filterSchema,
    async handle({ body, actor }) {
      const run = await planRun(deps.runs, body, true, actor).catch(busyOrThrow)
      if (!run) return { page: refusalPage(409, 'Another dry run is under way', 'It takes ten seconds at most; try again then.') }
      return { to: `/ops/replays/${run.id}` }
    },
  })

  router.get(
    '/ops/replays/:id',
    screen(deps, async (visit, req) => {
      const id = readRunId(String(req.params.id))
      const run = id && (await findRun(deps.reads, id))
      if (!run) return noRun
      return {
        title: `Replay of ${countText(run.events)} events`,
        place: 'events',
        main: pageOf(run, visit, deps.sendsPerMinute),
      }
    }),
  )

  const bare = z.strictObject({})
  addAction(router, deps, '/ops/replays/:id/start', {
    roles: ['operator'],
    body: bare,
    async handle({ req, actor }) {
      const id = readRunId(String(req.params.id))
      const run = id && (await startRun(deps.runs, id, actor, 'page'))
      if (!run) return { page: noRun }
      if (run.state === 'stopped') return { page: refusalPage(409, 'It was stopped', 'Plan it again to start it.') }
      return { to: `/ops/replays/${run.id}`, notice: { text: 'The replay has started.' } }
    },
  })
  addAction(router, deps, '/ops/replays/:id/stop', {
    roles: ['operator'],
    body: bare,
    async handle({ req, actor }) {
      const id = readRunId(String(req.params.id))
      const run = id && (await stopRun(deps.pool, id, actor, 'page'))
      if (!run) return { page: noRun }
      if (run.state !== 'stopped') return { page: refusalPage(409, 'It has ended already', 'All its events were gone through.') }
      return { to: `/ops/replays/${run.id}`, notice: { text: 'Stopped: what waits by now is processed, nothing more is added.' } }
    },
  })
  return router
}

const states: Record<Run['state'], string> = { planned: 'Dry run', running: 'Running', stopped: 'Stopped', done: 'Done' }

function planForm(filter: { source: string; event_id: string; status: string }): Html {
  const { event_id, status, source } = filter
  return actionForm({
    action: '/ops/replays',
    fields: html`${Object.entries(filter).map(([name, value]) => html`<input type="hidden" name="${name}" value="${value}">`)}<button class="main">Dry run</button>`,
    byApi: {
      method: 'POST',
      path: '/v1/replay',
      body: { filter: { source, status: [status], event_ids: [event_id] }, dry_run: true },
      cli: ['events', 'replay', '--source', source, '--event-id', event_id, '--status', status, '--dry-run'],
    },
  })
}

function pageOf(run: Run, visit: Visit, sendsPerMinute = 110): Html {
  const { view } = visit
  const isPlan = run.state === 'planned'
  const isOver = isPlan && run.expires_at < view.now
  const filter = Object.entries(run.filter).map(
    ([name, value]) =>
      html`<dt>${name.replace('_', ' ')}</dt><dd>${Array.isArray(value) ? value.join(', ') : String(value)}</dd>`,
  )
  return html`<div class="title"><h1>Replay ${countText(run.events)} ${run.events === 1 ? 'event' : 'events'}</h1><p id="run-state" data-live><b>${
    isPlan ? 'Dry run: nothing has happened' : states[run.state]
  }</b></p></div>
<dl class="facts">${filter}<dt>Planned</dt><dd>${view.time(run.created_at)} by ${run.created_by}${isPlan && html`, valid until ${view.exactTime(run.expires_at)}`}</dd></dl>
${run.next_since && html`<p>More events match than one replay takes. The next would begin at ${view.exactTime(run.next_since)}.</p>`}
${run.forecast && forecastOf(run.forecast as Forecast, sendsPerMinute) /* kept as it was made */}
${!isPlan && live('run-progress', progressOf(run, visit))}
${isOver ? html`<p class="error">This plan has expired. Plan it again.</p>` : actionsOf(run, visit)}`
}

function forecastOf({ events, emails }: Forecast, sendsPerMinute: number): Html {
  const held = Object.entries(emails.held).filter(([, count]) => count > 0)
  const labels: Record<string, { word: string }> = sendLabels
  const row = (what: Part, count: number) => html`<tr><td>${what}</td><td class="number">${countText(count)}</td></tr>`
  return html`<p class="answer"><b>${countText(emails.would_send)}</b> ${emails.would_send === 1 ? 'email' : 'emails'} would be sent${
    emails.would_send > 0 &&
    `, which takes about ${durationText((emails.would_send / sendsPerMinute) * 60_000)} at ${sendsPerMinute} a minute`
  }.</p>
${table({
  caption: 'Emails',
  head: ['What would become of them', { figures: 'Count' }],
  rows: [
    row('Would be sent', emails.would_send),
    ...held.map(([status, count]) => row(`Nothing is sent, the key is taken: ${labels[status]?.word ?? status}`, count)),
    ...(emails.key_taken > 0 ? [row('Fail: the key belongs to a send to another recipient', emails.key_taken)] : []),
  ],
})}${table({
  caption: 'Events',
  head: ['What they are', { figures: 'Count' }],
  rows: Object.entries(events).map(([prospect, count]) => row(prospectWords[prospect as keyof typeof events], count)), // its keys
})}`
}

function progressOf(run: Run, { view }: Visit): Html {
  const labels: Record<string, { word: string }> = eventLabels
  const statuses = Object.entries(run.statuses).map(
    ([status, count]) => `${countText(count)} ${(labels[status]?.word ?? status).toLowerCase()}`,
  )
  const share = run.done > 0 && run.started_at ? (run.events - run.done) / run.done : undefined
  const left =
    share !== undefined && run.started_at && run.state === 'running'
      ? share * (view.now.getTime() - run.started_at.getTime())
      : undefined
  return html`<p><progress max="${run.events}" value="${run.done}" aria-label="Events gone through"></progress></p>
<p>${countText(run.done)} of ${countText(run.events)} gone through${left !== undefined && `, about ${durationText(left)} left`} · ${countText(run.queued)} run again · ${countText(run.read_anew)} read anew${
    statuses.length > 0 && ` · now ${statuses.join(', ')}`
  }</p>
<p class="muted">Started ${view.time(run.started_at)} by ${run.started_by ?? '–'}${run.ended_at && html` · ended ${view.time(run.ended_at)}`}${run.stopped_by !== null && ` · stopped by ${run.stopped_by}`}</p>
<p><a href="/ops/sends?since=${(run.started_at ?? run.created_at).toISOString()}">Sends asked for since</a></p>`
}

function actionsOf({ id, events, state }: Run, visit: Visit): Part {
  if (state === 'done' || state === 'stopped') return null
  if (!mayDecide(visit)) return html`<p class="muted">Starting and stopping needs the role operator.</p>`
  const stop = actionForm({
    action: `/ops/replays/${id}/stop`,
    fields: html`<button>${state === 'planned' ? 'Cancel' : 'Stop'}</button>`,
    byApi: { method: 'POST', path: `/v1/runs/${id}/stop` },
  })
  if (state === 'running') return stop
  return html`<div class="actions">${actionForm({
    action: `/ops/replays/${id}/start`,
    fields: html`<button class="main">Start replay of these ${countText(events)}</button>`,
    byApi: { method: 'POST', path: '/v1/replay', body: { plan: id }, cli: ['events', 'replay', '--plan', id] },
  })}${stop}</div>`
}
