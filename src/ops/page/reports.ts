import { type Request, Router } from 'express'
import { z } from 'zod'
import { excludeForm } from '../../sends/address.ts'
import { dismissReport } from '../../sends/attach.ts'
import { reasonSchema } from '../decide-send.ts'
import { findEvidence } from '../evidence.ts'
import { readRowId, sendKey } from '../filters.ts'
import { type Mask, maskFor } from '../personal-data.ts'
import { countReports, findReport, listReports, reportFilter, type UnmatchedReport } from '../report-queries.ts'
import { countText, sendLabels } from '../words.ts'
import { addAction, type Problem } from './action.ts'
import { actionForm, boosted, byApiDetails, errorSummary, field, pager, sendTag, table } from './components.ts'
import { attachFields } from './decision-forms.ts'
import { addressWith, readFilter } from './filter.ts'
import { attribute, type Html, html, type Part } from './html.ts'
import type { Page } from './layout.ts'
import { missingPage, refusalPage, screen } from './page.ts'
import { sendPath } from './reopening.ts'
import { deskTabs, evidencePart } from './review-desk.ts'
import type { ScreenDeps } from './routes.ts'
import { mayDecide, type Visit } from './visit.ts'

const MOST_COUNTED = 1_000
const tabFilter = reportFilter.extend({ tab: z.literal('reports') })
const reportPath = (event: string, key?: string): string =>
  `/ops/review/reports/${event}${key === undefined ? '' : `?key=${encodeURIComponent(key)}`}`

/** The reports that found no send, with those that they may be of. */
export async function reportsTab(deps: ScreenDeps, visit: Visit, req: Request): Promise<Page> {
  const read = readFilter(req, tabFilter)
  const heading = html`<h1>Needs a decision</h1>${deskTabs('reports')}`
  if (!read.filter)
    return {
      title: 'Error: Unmatched reports',
      place: 'review',
      status: 400,
      main: html`${heading}${errorSummary(read.problems)}`,
    }
  const mask = maskFor(visit.session.person.role, deps.config())
  const { reports, next_cursor } = mask.apply(await listReports(deps.reads, read.filter))
  const counts = await countReports(deps.reads, MOST_COUNTED)
  const { parked, dismissed } = read.filter
  return {
    title: 'Unmatched reports',
    place: 'review',
    main: html`${heading}<p>Delivery reports that could not be told to belong to one send. <i>Foreign</i>: nothing of ours explains it. <i>Ambiguous</i>: several calls could be meant. One of them may be the answer to a send that needs a decision.</p>
${filterLinks(visit.address, counts, parked, dismissed)}
${reports.length === 0 ? html`<p>None.</p>` : reportTable(reports, visit)}${pager(visit.address, next_cursor)}
${byApiDetails({ method: 'GET', path: `/v1/reports${dismissed ? '?dismissed=true' : parked === undefined ? '' : `?parked=${encodeURIComponent(parked)}`}` })}`,
  }
}

function filterLinks(address: string, counts: Record<string, number>, parked: string | undefined, isDismissed: boolean): Html {
  const link = (label: string, changes: Record<string, string | null>, isCurrent: boolean) =>
    html`<a href="${addressWith(address, { cursor: null, parked: null, dismissed: null, ...changes })}"${attribute('aria-current', isCurrent && 'true')}>${label}</a>`
  const total = Object.values(counts).reduce((sum, count) => sum + count, 0)
  return html`<p ${boosted}>${link(`all ${countText(total, MOST_COUNTED)}`, {}, parked === undefined && !isDismissed)}${Object.entries(
    counts,
  ).map(
    ([reason, count]) => html` · ${link(`${reason} ${countText(count)}`, { parked: reason }, parked === reason)}`,
  )} · ${link('not ours', { dismissed: 'true' }, isDismissed)}</p>`
}

function reportTable(reports: readonly UnmatchedReport[], visit: Visit): Html {
  const row = (report: UnmatchedReport) => {
    const { event, event_id, kind, bounce_kind, message_id, recipient, occurred_at, parked, dismissed_by, candidates } = report
    return html`<tr data-row="${event}"><td><a href="${reportPath(event)}">${bounce_kind && `${bounce_kind} `}${kind}</a><br><a class="mono muted" href="/ops/events/${event}">${event_id}</a></td>
<td class="mono">${message_id ?? '–'}</td><td>${recipient ?? '–'}</td><td>${visit.view.time(occurred_at)}</td><td>${dismissed_by === null ? parked : `not ours, says ${dismissed_by.replace(/^(person:)+/, '')}`}</td>
<td>${candidates.length === 0 ? 'none' : candidates.slice(0, 3).map(({ dedupe_key, status }) => html`<a class="mono" href="${reportPath(event, dedupe_key)}">${dedupe_key}</a> ${sendLabels[status].word}<br>`)}${candidates.length > 3 && `and ${candidates.length - 3} more`}</td></tr>`
  }
  return html`<div data-rows>${table({
    caption: 'Unmatched reports, the newest first',
    head: ['Report', 'Message ID', 'To', 'Time', 'Why', 'May be of'],
    rows: reports.map(row),
    className: 'stack',
  })}</div>`
}

/** Mounts one unmatched report: whose it may be, attaching it, and saying that it is not ours. */
export function reportsScreen(deps: ScreenDeps): Router {
  const router = Router({ caseSensitive: true, strict: true })
  router.get(
    '/ops/review/reports/:event',
    screen(deps, (visit, req) => reportPage(deps, visit, req)),
  )
  addAction(router, deps, '/ops/review/reports/:event/dismiss', {
    roles: ['operator'],
    body: z.strictObject({ reason: reasonSchema }),
    async handle({ body: { reason }, visit, actor, req }) {
      const event = readRowId(String(req.params.event))
      const { outcome } = event
        ? await dismissReport(deps, event, { reason, actor, via: 'page', requestId: visit.requestId })
        : { outcome: 'not_found' }
      if (outcome === 'not_found' || !event) return { page: noReport }
      if (outcome === 'report_taken')
        return {
          page: refusalPage(409, 'It belongs to a send', html`Nothing was changed. <a href="/ops/events/${event}">The event</a>`),
        }
      return {
        to: '/ops/review?tab=reports',
        notice: { text: 'Saved: not ours.', link: { href: reportPath(event), label: 'Attach it after all' } },
      }
    },
    invalid: ({ problems, visit, req }) => reportPage(deps, visit, req, problems),
  })
  return router
}

const noReport = missingPage(
  'No such report',
  html`Or it belongs to a send by now. <a href="/ops/review?tab=reports">Unmatched reports</a>`,
)

async function reportPage(deps: ScreenDeps, visit: Visit, req: Request, problems: readonly Problem[] = []): Promise<Page> {
  const event = readRowId(String(req.params.event))
  const report = event && (await findReport(deps.reads, event))
  if (!report) return { ...noReport, place: 'review' }
  const mask = maskFor(visit.session.person.role, deps.config())
  const key = typeof req.query.key === 'string' ? sendKey.safeParse(req.query.key).data : undefined
  const {
    kind,
    bounce_kind,
    message_id,
    recipient,
    subject,
    occurred_at,
    has_own_time,
    parked,
    dismissed_at,
    dismissed_by,
    candidates,
  } = mask.apply(report)
  const facts: [string, Part][] = [
    ['Says', html`${bounce_kind && `${bounce_kind} `}${kind}`],
    ['Message ID', html`<span class="mono">${message_id ?? '–'}</span>`],
    ['To', recipient ?? '–'],
    ['Subject', subject ?? '–'],
    ['Time', html`${visit.view.exactTime(occurred_at)}, ${has_own_time ? 'its own' : 'of its arrival'}`],
    ['Why it found no send', parked],
    ...(dismissed_at
      ? ([['Not ours', html`says ${dismissed_by ?? '–'}, ${visit.view.exactTime(dismissed_at)}`]] as [string, Part][])
      : []),
  ]
  const main = html`<h1>Unmatched report</h1>${errorSummary(problems)}<dl class="facts">${facts.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>
<p><a href="/ops/events/${report.event}">The event, as it came</a></p>
<h2>May be of</h2>${
    candidates.length === 0
      ? html`<p>Nothing that is known.</p>`
      : table({
          caption: 'The nearest first',
          head: ['Send (key)', 'Status', 'Call', 'From it'],
          rows: candidates.map(
            ({ dedupe_key, status, attempt, seconds_after_call }) =>
              html`<tr><td><a class="mono" href="${reportPath(report.event, dedupe_key)}">${dedupe_key}</a></td><td>${sendTag(status)}</td><td class="number">${attempt}</td><td class="number">${countText(seconds_after_call)} s</td></tr>`,
          ),
        })
  }<form class="filters" action="${reportPath(report.event)}" method="get">${field({ name: 'key', label: 'Or the send with the key', value: key, required: true, maxLength: 512 })}<button>Compare</button></form>
${key !== undefined && (await attachPart(deps, visit, report, key, mask))}
${mayDecide(visit) && dismissed_at === null && dismissForm(report.event, problems)}
<p><a href="/ops/review?tab=reports">Unmatched reports</a></p>`
  return {
    title: problems.length > 0 ? 'Error: Unmatched report' : 'Unmatched report',
    place: 'review',
    status: problems.length > 0 ? 400 : 200,
    main,
  }
}

/** The send that it is compared with, and the form that attaches it. */
async function attachPart(deps: ScreenDeps, visit: Visit, report: UnmatchedReport, key: string, mask: Mask): Promise<Html> {
  const evidence = await findEvidence(deps.reads, key, visit.view.now)
  if (!evidence) return html`<p class="banner">No send has the key ${key}.</p>`
  const isOtherMailbox = report.recipient !== null && excludeForm(report.recipient) !== excludeForm(evidence.recipient)
  return html`<section aria-label="Attach"><h2 class="key">${key}</h2><p>${sendTag(evidence.status)} <a href="${sendPath(key)}">Its whole story</a></p>
${evidence.status === 'needs_review' && evidencePart(mask.apply(evidence), visit)}
${isOtherMailbox && html`<p class="banner ask">The report is about ${mask.text(report.recipient ?? '')}, the send to ${mask.text(evidence.recipient)}.</p>`}
${
  mayDecide(visit)
    ? attachFields(report.event, evidence, {}, {}, { scope: 'attach-', isOtherMailbox })
    : html`<p class="muted">Attaching needs role operator.</p>`
}</section>`
}

function dismissForm(event: string, problems: readonly Problem[]): Html {
  return html`<details${attribute('open', problems.length > 0)}><summary>Not ours…</summary><p>It leaves this list and settles nothing by itself any more. Attaching it takes that back.</p>${actionForm(
    {
      action: `/ops/review/reports/${event}/dismiss`,
      fields: html`${field({ name: 'reason', label: 'Reason', required: true, maxLength: 1_000, problems })}<button class="main">It is not ours</button>`,
      byApi: { method: 'POST', path: `/v1/reports/${event}/dismiss`, body: { reason: '…' } },
    },
  )}</details>`
}
