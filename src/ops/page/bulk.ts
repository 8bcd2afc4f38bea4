import { Router } from 'express'
import { z } from 'zod'
import { findOperator } from '../../sends/second-person.ts'
import { type Verdict, verdicts } from '../../sends/suggest.ts'
import {
  CONFIRMED_FROM,
  type DecisionPlan,
  findPlan,
  MOST_IN_A_PLAN,
  type PlannedSend,
  planDecisions,
  runPlan,
} from '../bulk-decisions.ts'
import { asConfigured, SECOND_PERSON } from '../decide-send.ts'
import { readRunId } from '../filters.ts'
import { maskFor } from '../personal-data.ts'
import { MOST_COUNTED, type ReviewCounts } from '../review-queries.ts'
import { countText, skippedWords, verdictWords } from '../words.ts'
import { addAction, type Problem } from './action.ts'
import { actionForm, errorSummary, field, select, table } from './components.ts'
import { reasonFields, reasonIn, withReason } from './decision-forms.ts'
import { type Html, html, type Part } from './html.ts'
import type { Page } from './layout.ts'
import { missingPage, refusalPage, screen } from './page.ts'
import { sendPath } from './reopening.ts'
import type { ScreenDeps } from './routes.ts'
import { actorOf, mayDecide, type Visit } from './visit.ts'

const seenSend = z
  .string()
  .regex(/^[1-9]\d{0,8} [^\0]{1,512}$/)
  .transform((text) => ({ version: Number(text.slice(0, text.indexOf(' '))), key: text.slice(text.indexOf(' ') + 1) }))
const checkForm = z
  .strictObject({
    ...reasonIn,
    decision: z.enum(['sent', 'abandoned', 'retry']),
    which: z.enum(['ticked', 'all']),
    sends: z.union([seenSend.transform((send) => [send]), z.array(seenSend).max(MOST_IN_A_PLAN)]).default([]),
    suggestion: z.enum(verdicts).optional(),
  })
  .refine(({ which, sends }) => which === 'all' || sends.length > 0, {
    path: ['which'],
    message: 'tick at least one, or choose all',
  })
  .transform(withReason)

const runForm = z.strictObject({
  confirm: z
    .string()
    .trim()
    .regex(/^\d{1,6}$/, 'must be a number')
    .transform(Number)
    .optional(),
})

const decisionWords = { sent: 'It was sent', abandoned: 'Not sent, leave it', retry: 'Send it again' } as const
const choices = [
  ['sent', decisionWords.sent],
  ['abandoned', decisionWords.abandoned],
  ['retry', `${decisionWords.retry} (only those that a sending log lacks)`],
] as const

/** The form under the list: one decision for the ticked ones, or for all that the filter matches. It only checks. */
export function bulkForm(suggestion: Verdict | undefined, counts: ReviewCounts): Html {
  const all = suggestion === undefined ? counts.open : counts[suggestion]
  return checkOf({
    summary: 'Decide many at once…',
    which: html`${suggestion && html`<input type="hidden" name="suggestion" value="${suggestion}">`}
<fieldset class="choices"><legend>Which</legend><label><input type="radio" name="which" value="ticked" checked> the ticked ones</label>
<label><input type="radio" name="which" value="all"> all ${countText(all, MOST_COUNTED)} matching this filter${all > MOST_IN_A_PLAN && `, ${MOST_IN_A_PLAN} at a time`}</label></fieldset>`,
    sends: { filter: suggestion === undefined ? {} : { suggestion } },
    cli: ['--filter', suggestion ?? 'all'],
  })
}

/** The same for the ticked ones of another list. */
export function tickedForm(): Html {
  return checkOf({
    summary: 'Decide the ticked ones…',
    which: html`<input type="hidden" name="which" value="ticked">`,
    sends: { sends: [{ key: '…' }] },
    cli: ['--keys', '…'],
  })
}

function checkOf({ summary, which, sends, cli }: { summary: string; which: Html; sends: object; cli: readonly string[] }): Html {
  return html`<details><summary>${summary}</summary>${actionForm({
    id: 'bulk',
    action: '/ops/review/check',
    fields: html`${select({ name: 'decision', label: 'Decision', choices })}${which}${reasonFields('bulk-', {})}<button>Check</button>`,
    byApi: {
      method: 'POST',
      path: '/v1/resolve',
      body: { dry_run: true, decision: 'sent', reason: '…', ...sends },
      cli: ['sends', 'resolve', ...cli, '--decision', 'sent', '--reason', '…', '--dry-run'],
    },
  })}</details>`
}

const planPath = (id: string): string => `/ops/review/plans/${id}`

/** Mounts decisions about many sends: the check, which is a plan, and carrying that out. */
export function bulkScreen(deps: ScreenDeps): Router {
  const router = Router({ caseSensitive: true, strict: true })
  const find = async (visit: Visit, id: string | undefined) => {
    const plan = id === undefined ? undefined : await findPlan(deps.reads, id)
    return maskFor(visit.session.person.role, deps.config()).apply(plan)
  }
  const standing = async ({ decision, state, created_by }: DecisionPlan, visit: Visit): Promise<Standing> => {
    if (decision !== 'retry' || state !== 'planned' || !deps.config().secondPerson) return 'alone'
    const maker = await findOperator(deps.pool, created_by)
    return maker === undefined ? 'made by nobody' : maker === actorOf(visit) ? 'maker' : 'second'
  }

  addAction(router, deps, '/ops/review/check', {
    roles: ['operator'],
    body: checkForm,
    async handle({ body: { decision, reason, which, sends, suggestion }, actor }) {
      const plan = await planDecisions(
        deps,
        { decision, reason, ...(which === 'all' ? { filter: { suggestion } } : { sends }) },
        actor,
      )
      return { to: planPath(plan.id) }
    },
  })

  router.get(
    '/ops/review/plans/:id',
    screen(deps, async (visit, req) => {
      const plan = await find(visit, readRunId(String(req.params.id)))
      return plan ? planPage(plan, visit, await standing(plan, visit)) : noPlan
    }),
  )
  addAction(router, deps, '/ops/review/plans/:id', {
    roles: ['operator'],
    body: runForm,
    async handle({ body: { confirm }, visit, actor, req }) {
      const id = readRunId(String(req.params.id))
      const run = id
        ? await runPlan(asConfigured(deps), id, { actor, via: 'page', confirm })
        : ({ outcome: 'not_found' } as const)
      if (run.outcome === 'not_found' || !id)
        return {
          page: refusalPage(
            404,
            'There is no such plan',
            html`Or it has expired: it is good for ten minutes. Nothing was changed. <a href="/ops/review">Check again</a>`,
          ),
        }
      if (run.outcome === 'done')
        return {
          to: planPath(id),
          notice: { text: `${countText(run.plan.decided)} decided, ${countText(run.plan.skipped)} skipped.` },
        }
      const plan = await find(visit, id)
      if (!plan) return { page: noPlan }
      const turn = await standing(plan, visit)
      if (run.outcome === 'second_person_needed') return { page: { ...planPage(plan, visit, turn), status: 409 } }
      const problems = [{ path: 'confirm', message: `type how many it will change: ${run.will_change}` }]
      return { page: planPage(plan, visit, turn, problems) }
    },
    async invalid({ problems, visit, req }) {
      const plan = await find(visit, readRunId(String(req.params.id)))
      return plan ? planPage(plan, visit, await standing(plan, visit), problems) : noPlan
    },
  })
  return router
}

const noPlan = missingPage(
  'No such plan',
  html`It is forgotten a day after it has expired. <a href="/ops/review">Needs a decision</a>`,
)

/** Whether this person may carry out a plan: one for a resend that takes two people is for another than who made it. */
type Standing = 'alone' | 'maker' | 'second' | 'made by nobody'

function planPage(plan: DecisionPlan, visit: Visit, standing: Standing, problems: readonly Problem[] = []): Page {
  const { decision, reason, will_change, decided, skipped, state, sends, has_more } = plan
  const isOver = state === 'planned' && plan.expires_at <= visit.view.now
  const result = ({ result, skipped }: PlannedSend): Part =>
    result === 'skipped' && skipped ? `skipped: ${skippedWords[skipped]}` : result === 'decided' ? 'decided' : 'will change'
  const counted =
    state === 'planned'
      ? html`<p class="answer"><b>${countText(will_change)}</b> will change, ${countText(skipped)} skipped. Nothing has happened yet.</p>`
      : html`<p class="answer"><b>${countText(decided)}</b> decided, ${countText(skipped)} skipped${will_change > 0 && `, ${countText(will_change)} still to do`}.</p>`
  const title = state === 'planned' ? 'Check' : 'Decided'
  return {
    title: problems.length > 0 ? `Error: ${title}` : title,
    place: 'review',
    status: problems.length > 0 ? 400 : 200,
    main: html`<h1>${title}: ${decisionWords[decision]}</h1>${errorSummary(problems)}${counted}
<p>Reason: ${reason}. ${state === 'planned' ? html`Made ${visit.view.time(plan.created_at)} by ${plan.created_by}; good until ${visit.view.time(plan.expires_at)}.` : html`Started ${visit.view.time(plan.started_at)} by ${plan.started_by ?? '–'}.`}</p>
${has_more && html`<p>More sends match than one plan takes; check again after these.</p>`}
${standing === 'second' && html`<p>${plan.created_by.replace(/^person:/, '')} has made it, and the reason is theirs. <b>You are the second: the emails are sent when you confirm.</b></p>`}
${decision === 'retry' && state === 'planned' && html`<p class="banner bad"><b>A resend can't be taken back once it is called.</b> If a first email did go out after all, its recipient gets it twice.</p>`}
${planActions(plan, isOver, problems, visit, standing)}
${table({
  caption: 'Exactly these sends, as they were when this was made',
  head: ['Send (key)', 'To', 'Suggested', 'What happens'],
  rows: sends.map(
    (send) =>
      html`<tr data-row="${send.dedupe_key}"><td><a class="mono" href="${sendPath(send.dedupe_key)}">${send.dedupe_key}</a></td><td>${send.recipient ?? '–'}</td><td>${send.suggestion === null ? '–' : verdictWords[send.suggestion]}</td><td>${result(send)}</td></tr>`,
  ),
})}<p><a href="/ops/review">Back to the desk</a></p>`,
  }
}

function planActions(
  { id, state, will_change, created_by, expires_at }: DecisionPlan,
  isOver: boolean,
  problems: readonly Problem[],
  visit: Visit,
  standing: Standing,
): Part {
  if (state === 'done') return null
  if (!mayDecide(visit)) return html`<p class="muted">Carrying it out needs role operator.</p>`
  if (isOver) return html`<p>It has expired. <a href="/ops/review">Check again</a></p>`
  if (will_change === 0) return html`<p>There is nothing to carry out.</p>`
  if (standing === 'maker')
    return html`<p class="banner"><b>Another person has to carry it out</b>, on this page until ${visit.view.time(expires_at)}: ${SECOND_PERSON}. You have made it.</p>`
  if (standing === 'made by nobody')
    return html`<p class="banner"><b>Nobody can carry it out</b>: ${SECOND_PERSON}, and ${created_by}, who has made it, is no operator. <a href="/ops/review">Check again</a></p>`
  const mustType = state === 'planned' && will_change >= CONFIRMED_FROM
  return actionForm({
    action: planPath(id),
    fields: html`${mustType && field({ name: 'confirm', label: `Type how many: ${will_change}`, required: true, problems, inputMode: 'numeric', size: 8 })}<button class="main">${state === 'planned' ? `Confirm ${countText(will_change)} ${will_change === 1 ? 'decision' : 'decisions'}` : 'Go on'}</button>`,
    byApi:
      standing === 'second'
        ? 'personal'
        : {
            method: 'POST',
            path: '/v1/resolve',
            body: { plan: id, ...(mustType && { confirm: will_change }) },
            cli: ['sends', 'resolve', '--plan', id, ...(mustType ? ['--confirm', String(will_change)] : [])],
          },
  })
}
