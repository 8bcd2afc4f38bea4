import { Router } from 'express'
import { z } from 'zod'
import { inTransaction } from '../../../db.ts'
import { type Switched, switchMatching, switchSending } from '../../../sends/hold.ts'
import { reasonSchema } from '../../decide-send.ts'
import { MOST_COUNTED } from '../../filters.ts'
import { findSending, type Sending } from '../../sending-queries.ts'
import { countText } from '../../words.ts'
import { type ActionAnswer, addAction, type Given, type Problem } from '../action.ts'
import { actionForm, errorSummary, field } from '../components.ts'
import { type Html, html, type Part } from '../html.ts'
import type { Page } from '../layout.ts'
import { screen } from '../page.ts'
import type { ScreenDeps } from '../routes.ts'
import { mayDecide, type Visit } from '../visit.ts'

const to = '/ops/sending'
const version = z
  .string()
  .regex(/^[1-9]\d{0,8}$/)
  .transform(Number)
const sendingForm = z.strictObject({ version, paused: z.enum(['true', 'false']), reason: reasonSchema })
const matchingForm = z.strictObject({ version, mode: z.enum(['auto', 'suggest']), reason: reasonSchema })

/** Whether sending runs and reports settle by recipient, and the switches of both. */
export function sendingScreen(deps: ScreenDeps): Router {
  const router = Router({ caseSensitive: true, strict: true })
  const again = async (visit: Visit, status: number, title: string, above: Part, typed: Typed): Promise<Page> => ({
    title: `Error: ${title}`,
    place: 'overview',
    status,
    main: html`${above}${pageOf(await findSending(deps.pool), visit, typed)}`,
  })
  const answered = async (visit: Visit, switched: Switched, typed: Typed, text: string): Promise<ActionAnswer> => {
    if (switched.outcome !== 'stale') return { to, notice: { text } }
    const above = html`<div class="errors" role="alert"><h2>It changed while you had this open</h2><p>Nothing was changed by you. Below is how it stands now; your reason is still in its field.</p></div>`
    return { page: await again(visit, 409, 'changed meanwhile', above, typed) }
  }
  const invalidIn =
    (form: 'switch' | 'matching') =>
    ({ problems, given, visit }: { problems: Problem[]; given: Given; visit: Visit }) =>
      again(visit, 400, 'Sending', errorSummary(problems, { scope: `${form}-` }), {
        form,
        reason: String(given.reason ?? ''),
        problems,
      })

  router.get(
    to,
    screen(deps, async (visit) => ({
      title: 'Sending',
      place: 'overview',
      main: pageOf(await findSending(deps.reads), visit),
    })),
  )
  addAction(router, deps, '/ops/sending/switch', {
    roles: ['operator'],
    body: sendingForm,
    invalid: invalidIn('switch'),
    async handle({ body: { paused, ...rest }, visit, actor }) {
      const by = { ...rest, paused: paused === 'true', actor, via: 'page' }
      const switched = await inTransaction(deps.pool, (tx) => switchSending(tx, by))
      return answered(
        visit,
        switched,
        { form: 'switch', reason: rest.reason },
        by.paused ? 'Sending is paused.' : 'Sending runs again.',
      )
    },
  })
  addAction(router, deps, '/ops/sending/matching', {
    roles: ['operator'],
    body: matchingForm,
    invalid: invalidIn('matching'),
    async handle({ body, visit, actor }) {
      const switched = await inTransaction(deps.pool, (tx) => switchMatching(tx, { ...body, actor, via: 'page' }))
      const text = body.mode === 'auto' ? 'Reports settle by recipient again.' : 'Reports only suggest by recipient from now on.'
      return answered(visit, switched, { form: 'matching', reason: body.reason }, text)
    },
  })
  return router
}

/** What was typed into one of the two forms. */
interface Typed {
  form?: 'switch' | 'matching'
  reason?: string
  problems?: readonly Problem[]
}

function pageOf(sending: Sending, visit: Visit, typed: Typed = {}): Html {
  const { paused, reason, by, since, next_probe_at, unknown_in_a_row, waiting, matching, matching_reason, matching_since } =
    sending
  const { view } = visit
  return html`<h1>Sending</h1>
<p class="answer">${
    paused
      ? html`Sending is <b>paused</b> since ${view.exactTime(since)}${by !== null && ` by ${by}`}: ${reason}.`
      : html`Sending <b>runs</b>.`
  } ${countText(waiting, MOST_COUNTED)} ${waiting === 1 ? 'send waits' : 'sends wait'}.</p>
${paused && html`<p>${next_probe_at === null ? 'Nothing is called until a person resumes it.' : html`A single send is tried at ${view.exactTime(next_probe_at)}; if Inboxili takes it, sending runs again by itself.`}</p>`}
${!paused && unknown_in_a_row > 0 && html`<p>The last ${countText(unknown_in_a_row)} calls ended with an unknown outcome; after five in a row it is paused.</p>`}
${switchForm(sending, visit, typed)}
<h2>Reports that name only a recipient</h2>
<p>${
    matching === 'auto'
      ? 'They settle a send by themselves where only one fits.'
      : html`They <b>settle nothing by themselves</b> since ${view.exactTime(matching_since)}${matching_reason !== null && `: ${matching_reason}`}. They stand on the desk as suggestions, and as <a href="/ops/review?tab=reports">unmatched reports</a>.`
  }</p>
${matchingSwitch(sending, visit, typed)}`
}

const needsOperator = html`<p class="muted">Changing this needs role operator.</p>`

function switchForm({ version, paused }: Sending, visit: Visit, typed: Typed): Part {
  if (!mayDecide(visit)) return needsOperator
  const { reason, problems = [] } = typed.form === 'switch' ? typed : {}
  const wanted = !paused
  return actionForm({
    action: '/ops/sending/switch',
    fields: html`<input type="hidden" name="version" value="${version}"><input type="hidden" name="paused" value="${String(wanted)}">
${field({ name: 'reason', label: wanted ? 'Why pause it' : 'Why resume it', value: reason, required: true, maxLength: 1_000, problems, scope: 'switch-' })}
<button class="${wanted ? 'danger' : 'main'}">${wanted ? 'Pause sending' : 'Resume sending'}</button>`,
    byApi: {
      method: 'POST',
      path: '/v1/sending',
      body: { version, paused: wanted, reason: '…' },
      cli: ['sending', wanted ? 'pause' : 'resume', '--reason', '…'],
    },
  })
}

function matchingSwitch({ version, matching }: Sending, visit: Visit, typed: Typed): Part {
  if (!mayDecide(visit)) return needsOperator
  const { reason, problems = [] } = typed.form === 'matching' ? typed : {}
  const mode = matching === 'auto' ? 'suggest' : 'auto'
  return actionForm({
    action: '/ops/sending/matching',
    fields: html`<input type="hidden" name="version" value="${version}"><input type="hidden" name="mode" value="${mode}">
${field({ name: 'reason', label: 'Why', value: reason, required: true, maxLength: 1_000, problems, scope: 'matching-' })}
<button>${mode === 'auto' ? 'Let them settle by themselves' : 'Let them only suggest'}</button>`,
    byApi: {
      method: 'POST',
      path: '/v1/matching',
      body: { version, mode, reason: '…' },
      cli: ['matching', mode, '--reason', '…'],
    },
  })
}
