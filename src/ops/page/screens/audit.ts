import { Router } from 'express'
import { type AuditRow, listAudit } from '../../audit-queries.ts'
import { auditWord, auditWords } from '../../audit-words.ts'
import { auditFilter } from '../../filters.ts'
import { maskFor } from '../../personal-data.ts'
import { plannerText } from '../../story-lines.ts'
import { timeText } from '../../words.ts'
import { boosted, errorSummary, field, pager, select, table } from '../components.ts'
import { sendCsv } from '../csv.ts'
import { addressWith, copyLink, readFilter, timeField, timeLabels } from '../filter.ts'
import { type Html, html, type Part } from '../html.ts'
import { refusalPage, screen, sendPage } from '../page.ts'
import type { ScreenDeps } from '../routes.ts'
import { addViewActions, viewBar } from '../view-bar.ts'
import { visitOf } from '../visit.ts'

/** What people and programs have changed. */
export function auditScreen(deps: ScreenDeps): Router {
  const router = Router({ caseSensitive: true, strict: true })
  const schema = auditFilter(deps.now)

  router.get(
    '/ops/audit',
    screen(deps, async (visit, req) => {
      const { timeZone } = visit.view.settings
      const read = readFilter(req, schema, undefined, visit.view)
      const { given, filter, problems } = read
      const textField = (name: string, label: string) => field({ name, label, value: given[name], problems: problems ?? [] })
      const form = html`<form class="filters" action="/ops/audit" method="get" ${boosted}>${textField('actor', 'Who')}${actionSelect(given.action)}${textField('subject', 'About')}
${timeField('since', read, visit.view)}${timeField('until', read, visit.view)}<button class="main">Show</button> <a href="/ops/audit">Clear</a></form>`
      const heading = html`<h1>Audit</h1><p>What people and programs have changed. It is only added to: nothing in it can be changed or deleted.</p>`
      if (!filter)
        return {
          title: 'Error: Audit',
          place: 'audit',
          status: 400,
          main: html`${heading}${errorSummary(problems, { labels: timeLabels })}${form}`,
        }
      const mask = maskFor(visit.session.person.role, deps.config())
      const { audit, next_cursor } = mask.apply(await listAudit(deps.reads, filter))
      const csv = addressWith(visit.address, { cursor: null }).replace('/ops/audit', '/ops/audit.csv')
      const list = table({
        caption: `Times in ${timeZone}, the latest first`,
        head: ['When', 'Who', 'What', 'About', 'Before → after', 'Reason'],
        rows: audit.map((row) => rowOf(row, timeZone)),
        className: 'stack',
      })
      const main = html`${heading}${await viewBar(deps, 'audit', visit)}${form}<div class="actions"><a class="button" href="${csv}">Export CSV</a>${copyLink(visit)}</div>
${audit.length > 0 ? list : html`<p>Nothing matches. <a href="/ops/audit">Show all</a></p>`}${pager(visit.address, next_cursor)}`
      return { title: 'Audit', place: 'audit', main }
    }),
  )

  router.get('/ops/audit.csv', async (req, res) => {
    const { filter } = readFilter(req, schema, undefined, visitOf(res).view)
    if (filter) return sendCsv(deps, res, { list: 'audit', filter })
    await sendPage(
      deps,
      req,
      res,
      refusalPage(400, 'Nothing was exported', html`The filter is not valid. <a href="/ops/audit">Audit</a>`),
    )
  })

  addViewActions(router, deps, ['audit'])
  return router
}

/** What was given is among the choices, whatever it is. */
function actionSelect(given: string | undefined): Html {
  const known = given === undefined || Object.hasOwn(auditWords, given) ? [] : [[given, given] as const]
  return select({ name: 'action', label: 'What', value: given, choices: [['', 'Any'], ...Object.entries(auditWords), ...known] })
}

function rowOf({ id, at, actor, via, action, subject, reason, before, after }: AuditRow, zone: string): Html {
  return html`<tr data-row="${id}"><td class="first"><time datetime="${at.toISOString()}">${timeText(at, zone)}</time></td><td>${actor === via ? html`${actor} <span class="muted">by itself</span>` : html`${actor} <span class="muted">by ${via}</span>`}</td>
<td>${auditWord(action)}${plannerText({ after })}</td><td class="mono">${subjectOf(subject)}</td><td class="mono">${changeOf(before, after)}</td><td>${reason ?? ''}</td></tr>`
}

/** A link to what was changed, where it has a page. */
function subjectOf(subject: string): Part {
  const [kind, ...rest] = subject.split(':')
  const name = rest.join(':')
  if (kind === 'send') return html`<a href="/ops/sends/${encodeURIComponent(name)}">${subject}</a>`
  if (kind === 'event' && /^\d+$/.test(name)) return html`<a href="/ops/events/${name}">${subject}</a>`
  if (kind === 'run') return html`<a href="/ops/replays/${encodeURIComponent(name)}">${subject}</a>`
  return subject
}

/** Each value that differs, before and after. */
function changeOf(before: unknown, after: unknown): Part {
  const [old, fresh] = [fieldsOf(before), fieldsOf(after)]
  const names = [...new Set([...Object.keys(old), ...Object.keys(fresh)])]
  const changed = names.filter((name) => JSON.stringify(old[name]) !== JSON.stringify(fresh[name]))
  return changed.map((name) => {
    const from = name in old && `${textOf(old[name])} → `
    return html`<div>${name}: ${from}${name in fresh ? textOf(fresh[name]) : '–'}</div>`
  })
}

function fieldsOf(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? { ...value } : {}
}

const textOf = (value: unknown) => (typeof value === 'string' ? value : JSON.stringify(value ?? null))
