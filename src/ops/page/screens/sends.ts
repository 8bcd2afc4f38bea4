import { type Request, Router } from 'express'
import { statuses } from '../../../sends/lifecycle.ts'
import { policies } from '../../../sends/policies.ts'
import { MOST_COUNTED, type SendFilter, sendFilter } from '../../filters.ts'
import { maskFor } from '../../personal-data.ts'
import { explainNoHit, type NoHit } from '../../search.ts'
import { countSends, listSends } from '../../send-queries.ts'
import { countText, sendLabels } from '../../words.ts'
import { boosted, byApiDetails, copyButton, errorSummary, field, live, pager, select } from '../components.ts'
import { sendCsv } from '../csv.ts'
import { addressWith, copyLink, type ReadFilter, readFilter, timeField, timeLabels } from '../filter.ts'
import { type Html, html, type Part } from '../html.ts'
import { type Asked, noHitPart } from '../no-hit.ts'
import { refusalPage, screen, sendPage } from '../page.ts'
import type { ScreenDeps } from '../routes.ts'
import { sendTable } from '../send-table.ts'
import { shownTime } from '../typed-time.ts'
import { addViewActions, viewBar } from '../view-bar.ts'
import { type Visit, visitOf } from '../visit.ts'

/** The list of sends, with every filter in its address. */
export function sendsScreen(deps: ScreenDeps): Router {
  const router = Router({ caseSensitive: true, strict: true })
  const schema = sendFilter(deps.now)

  router.get(
    '/ops/sends',
    screen(deps, async (visit, req) => {
      const mask = maskFor(visit.session.person.role, deps.config())
      const read = readFilter(req, schema, mask, visit.view)
      const heading = html`<h1>Sends</h1>`
      if (!read.filter) {
        const main = html`${heading}${errorSummary(read.problems, { labels: { ...timeLabels, since: SINCE_LABEL } })}${filterForm(deps, read, visit)}`
        return { title: 'Error: Sends', place: 'sends', status: 400, main }
      }
      const filter = { ...read.filter, withoutAddresses: mask.isOn }
      const { sends, next_cursor } = mask.apply(await listSends(deps.reads, filter, deps.sendsPerMinute))
      // A list that is on one page is counted already.
      const isWhole = read.filter.cursor === undefined && next_cursor === null
      const count = isWhole ? sends.length : await countSends(deps.reads, filter)
      const { q } = read.filter
      const noHit =
        q !== undefined && count === 0
          ? { why: await explainNoHit(deps.reads, q, mask.isOn), asked: { q, visit, mask } }
          : undefined
      const list =
        sends.length === 0
          ? html`<div data-rows>${emptyText(read, count, noHit)}</div>`
          : sendTable(sends, visit, { withTicks: true })
      const forms = takeAway(deps, read, visit, req)
      const main = html`<div class="title"><div class="name">${heading}${live('sends-count', html`<b>${countText(count, MOST_COUNTED)}</b> ${isFiltered(read.given) ? 'match' : count === 1 ? 'send' : 'sends'}`, 'span')}</div>${forms.actions}</div>
${await viewBar(deps, 'sends', visit)}${filterForm(deps, read, visit)}
<p class="new-rows" data-new-rows hidden><a href="${addressWith(visit.address, { cursor: null })}"></a></p>
${list}${pager(visit.address, next_cursor)}${forms.byApi}`
      return { title: 'Sends', place: 'sends', main }
    }),
  )

  router.get('/ops/sends.csv', async (req, res) => {
    const { filter } = readFilter(req, schema, maskFor(visitOf(res).session.person.role, deps.config()), visitOf(res).view)
    if (filter) return sendCsv(deps, res, { list: 'sends', filter })
    const back = html`The filter is not valid. <a href="${addressWith(req.originalUrl, {}).replace('/ops/sends.csv', '/ops/sends')}">Back to the list</a>`
    await sendPage(deps, req, res, refusalPage(400, 'Nothing was exported', back))
  })

  addViewActions(router, deps, ['sends'])
  return router
}

/** Whether anything but the page's place and length was asked for. */
const isFiltered = (given: Record<string, string>) => Object.keys(given).some((name) => name !== 'cursor' && name !== 'limit')

const spans = [
  ['', 'Any time'],
  ['1h', 'Last hour'],
  ['24h', 'Last 24 hours'],
  ['7d', 'Last 7 days'],
  ['30d', 'Last 30 days'],
] as const

const SINCE_LABEL = 'Asked for'

function filterForm({ config }: ScreenDeps, read: ReadFilter<unknown>, visit: Visit): Html {
  const { given, problems = [] } = read
  // What is changed from here on is still a change of the view.
  const view = new URL(visit.address, 'http://page').searchParams.get('view')
  const any = ['', 'Any'] as const
  /** What the address says is among the choices, whatever it is. */
  const withGiven = (name: string, choices: readonly (readonly [string, string])[]) => {
    const value = given[name]
    if (value === undefined || choices.some(([choice]) => choice === value)) return choices
    return [...choices, [value, shownTime(value, visit.view.settings.timeZone)] as const]
  }
  const several = (given.status ?? '').split(',').flatMap((status) => statuses.find((known) => known === status) ?? [])
  const statusChoices = [
    any,
    ...(several.length > 1 ? [[given.status ?? '', several.map((status) => sendLabels[status].word).join(' or ')] as const] : []),
    ...statuses.map((status) => [status, sendLabels[status].word] as const),
  ]
  return html`<form class="filters" action="/ops/sends" method="get" ${boosted}>${view && html`<input type="hidden" name="view" value="${view}">`}
${field({ name: 'q', label: 'Search', type: 'search', value: given.q, problems, maxLength: 1_000 })}
${select({ name: 'status', label: 'Status', value: given.status, choices: withGiven('status', statusChoices) })}
${select({ name: 'since', label: SINCE_LABEL, value: given.since, choices: withGiven('since', spans) })}
${select({ name: 'policy', label: 'Policy', value: given.policy, choices: withGiven('policy', [any, ...policies.map((name) => [name, name] as const)]) })}
${select({ name: 'source', label: 'Source', value: given.source, choices: withGiven('source', [any, ...[...config().sources.keys()].map((name) => [name, name] as const)]) })}
${given.until !== undefined && timeField('until', read, visit.view)}
${given.unknown_since !== undefined && timeField('unknown_since', read, visit.view)}
${given.recipient !== undefined && field({ name: 'recipient', label: 'Recipient', value: given.recipient, problems })}
<button class="main">Show</button>${isFiltered(given) && html`<a href="/ops/sends">Clear</a>`}</form>`
}

function emptyText({ given }: ReadFilter<unknown>, count: number, noHit: { why: NoHit; asked: Asked } | undefined): Part {
  if (count > 0)
    return html`<p>There is nothing older. <a href="${`/ops/sends?${new URLSearchParams({ ...given, cursor: '' })}`}">Newest</a></p>`
  if (noHit)
    return html`<p>No send matches.${noHit.why.broke === 'filtered' && html` <a href="/ops/sends?q=${encodeURIComponent(noHit.asked.q)}">Without the other filters</a>`}</p>${noHitPart(noHit.why, noHit.asked)}`
  if (isFiltered(given)) return html`<p>No send matches. <a href="/ops/sends">Show all</a></p>`
  return html`<p>No sends yet. A signed sample event, as its provider would send it, makes one:</p><pre tabindex="0">npx oncehook trigger stripe invoice.paid</pre>`
}

/** The list in other forms: as a file, as an address, as a call. */
function takeAway(
  { publicUrl }: ScreenDeps,
  { given, asked, filter }: ReadFilter<Pick<SendFilter, 'since' | 'until' | 'unknown_since'>>,
  visit: Visit,
  req: Request,
): { actions: Html; byApi: Html } {
  const withoutPlace = ({ cursor: _, ...fields }: Record<string, string>) => fields
  const kept = withoutPlace(given)
  // A call names its times so that they don't depend on who makes it.
  const called = withoutPlace(asked)
  const queryOf = (fields: Record<string, string>) => {
    const query = String(new URLSearchParams(fields))
    return query === '' ? '' : `?${query}`
  }
  const since = filter?.since && { since: filter.since.toISOString() }
  const unknownSince = filter?.unknown_since && { unknown_since: filter.unknown_since.toISOString() }
  const fixed = { ...kept, ...since, ...unknownSince, until: (filter?.until ?? visit.view.now).toISOString() }
  const origin = publicUrl === undefined ? `${req.protocol}://${req.get('host')}` : new URL(publicUrl).origin
  const path = `/v1/sends${queryOf(called)}`
  return {
    actions: html`<div class="actions"><a class="button quiet" href="/ops/sends.csv${queryOf(kept)}">Export CSV</a>${copyLink(visit)}${copyButton(
      `${origin}/ops/sends${queryOf(fixed)}`,
      'Copy link, fixed times',
    )}${copyButton(`curl -sS "$ONCEHOOK_URL${path}" -H "Authorization: Bearer $ONCEHOOK_TOKEN"`, 'Copy curl')}</div>`,
    byApi: byApiDetails({
      method: 'GET',
      path,
      cli: ['sends', 'list', ...Object.entries(called).flatMap(([name, value]) => [`--${name.replace('_', '-')}`, value])],
    }),
  }
}
