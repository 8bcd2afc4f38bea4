import { type Request, Router } from 'express'
import { type Attached, attachReport } from '../../sends/attach.ts'
import type { Decided } from '../../sends/decide.ts'
import { findAsks } from '../../sends/second-person.ts'
import { answerSentence } from '../answer.ts'
import { asConfigured, decideSend, SECOND_PERSON } from '../decide-send.ts'
import { findEvidence, type SendEvidence } from '../evidence.ts'
import { sendKey } from '../filters.ts'
import { maskFor } from '../personal-data.ts'
import { findSend } from '../send-queries.ts'
import { sendLabels } from '../words.ts'
import { addAction, type Given, type Problem } from './action.ts'
import { errorSummary, sendTag, table } from './components.ts'
import {
  attachFields,
  attachForm,
  decisionFields,
  decisionForm,
  decisionForms,
  type Onward,
  resendFields,
  resendForm,
  type Typed,
} from './decision-forms.ts'
import { type Html, html, type Part } from './html.ts'
import type { Page } from './layout.ts'
import { refusalPage, screen } from './page.ts'
import { canBeReopened, reopenForm, sendPath } from './reopening.ts'
import { deskPath, evidencePart } from './review-desk.ts'
import type { ScreenDeps } from './routes.ts'
import { actorOf, mayDecide, type Visit } from './visit.ts'

/** Mounts what is decided about one send: that it was sent, that it wasn't, that it is sent again, and whose report one is. */
export function decisionActions(deps: ScreenDeps): Router {
  const router = Router({ caseSensitive: true, strict: true })
  const decideDeps = asConfigured(deps)
  const keyOf = (req: Request) => String(req.params.key)
  const evidenceOf = async (req: Request, visit: Visit) => {
    const key = sendKey.safeParse(req.params.key)
    const evidence = key.success ? await findEvidence(deps.reads, key.data, visit.view.now) : undefined
    return maskFor(visit.session.person.role, deps.config()).apply(evidence)
  }
  /** The form again, with what was typed and what is wrong with it. */
  const again = async (req: Request, visit: Visit, given: Given, problems: readonly Problem[], form: FormOf): Promise<Page> => {
    const evidence = await evidenceOf(req, visit)
    if (!evidence) return noSend
    return formPage('Error: not saved', evidence, visit, typedOf(given, problems), form, 400)
  }

  addAction(router, deps, '/ops/review/decide/:key', {
    roles: ['operator'],
    body: decisionForm,
    async handle({ body: { version, reason, decision, message_id, suggestion, next }, visit, actor, req }) {
      const key = keyOf(req)
      const by = { version, reason, actor, via: 'page', requestId: visit.requestId }
      const decided = await decideSend(
        decideDeps,
        key,
        decision === 'sent' ? { decision, messageId: message_id, ...by } : { decision, ...by },
      )
      if (decided.outcome !== 'decided') return { page: await notSaved(deps, key, decided.outcome, { version, reason }, visit) }
      return {
        to: deskPath({ suggestion, key: next }),
        notice: {
          text: `Saved: ${key} ${decision === 'sent' ? 'was sent' : 'was not sent, and is left so'}.`,
          link: { href: `${sendPath(key)}#reopen`, label: 'Reopen' },
        },
      }
    },
    invalid: ({ problems, given, visit, req }) =>
      again(req, visit, given, problems, (evidence, typed) =>
        decisionFields(given.decision === 'sent' ? 'sent' : 'abandoned', evidence, {}, typed),
      ),
  })

  addAction(router, deps, '/ops/review/attach/:key', {
    roles: ['operator'],
    body: attachForm,
    async handle({ body: { version, reason, event, other_mailbox, suggestion, next }, visit, actor, req }) {
      const key = keyOf(req)
      const attached = await attachReport(decideDeps, key, {
        event,
        version,
        reason,
        isOtherMailbox: other_mailbox === 'on',
        actor,
        via: 'page',
        requestId: visit.requestId,
      })
      if (attached.outcome !== 'attached')
        return { page: await notSaved(deps, key, attached.outcome, { version, reason }, visit) }
      return {
        to: deskPath({ suggestion, key: next }),
        notice: {
          text: `Attached: ${key} is “${sendLabels[attached.status].word}” now.`,
          link: { href: sendPath(key), label: 'Its story' },
        },
      }
    },
    invalid: ({ problems, given, visit, req }) =>
      again(req, visit, given, problems, (evidence, typed) => attachFields(String(given.event ?? ''), evidence, {}, typed)),
  })

  router.get(
    '/ops/review/again/:key',
    screen(deps, async (visit, req) => {
      const evidence = await evidenceOf(req, visit)
      if (!evidence) return noSend
      const { suggestion, next } = req.query
      const onward = {
        suggestion: suggestion === 'sent' || suggestion === 'not_sent' || suggestion === 'cant_tell' ? suggestion : undefined,
        next: typeof next === 'string' ? next : undefined,
      } as const
      return formPage('Send it again?', evidence, visit, {}, (it, typed) => resendPart(deps, it, visit, onward, typed))
    }),
  )
  addAction(router, deps, '/ops/review/again/:key', {
    roles: ['operator'],
    body: resendForm,
    async handle({ body: { version, reason, suggestion, next }, visit, actor, req }) {
      const key = keyOf(req)
      const by = { version, reason, actor, via: 'page', requestId: visit.requestId }
      const decided = await decideSend(decideDeps, key, { decision: 'retry', ...by })
      if (decided.outcome === 'asked')
        return {
          to: deskPath({ suggestion, key: next }),
          notice: { text: `Noted: ${key} is sent again when another person says so too.` },
        }
      if (decided.outcome !== 'decided') return { page: await notSaved(deps, key, decided.outcome, { version, reason }, visit) }
      return {
        to: deskPath({ suggestion, key: next }),
        notice: { text: `Saved: ${key} waits to be sent again.`, link: { href: sendPath(key), label: 'Its story' } },
      }
    },
    invalid: ({ problems, given, visit, req }) =>
      again(req, visit, given, problems, (it, typed) => resendPart(deps, it, visit, {}, typed)),
  })
  return router
}

type FormOf = (evidence: SendEvidence, typed: Typed) => Html | Promise<Html>

const noSend = refusalPage(404, 'No send has this key', html`Nothing was changed. <a href="/ops/review">Needs a decision</a>`)

const typedOf = (given: Given, problems: readonly Problem[]): Typed => ({
  reason: String(given.reason ?? ''),
  preset: String(given.preset ?? ''),
  problems,
})

/** The form of a resend; where it takes two people it says what becomes of it, and who has asked needs none. */
async function resendPart(deps: ScreenDeps, evidence: SendEvidence, visit: Visit, onward: Onward, typed: Typed): Promise<Html> {
  const asks = deps.config().secondPerson ? await findAsks(deps.reads, evidence.dedupe_key, evidence.version) : undefined
  const own = asks?.find(({ actor }) => actor === actorOf(visit))
  const other = asks?.find(({ actor }) => actor !== actorOf(visit))
  if (own && !other)
    return html`<p class="banner">You have asked for it ${visit.view.time(own.at)}: ${own.reason}. <b>It waits for another person</b>, who has to say so too, here or at the command line. Nothing is sent before that.</p>`
  const who =
    asks &&
    (other
      ? html`<p>${personOf(other.actor)} has asked for it ${visit.view.time(other.at)}: ${other.reason}. <b>You are the second: it is sent when you say so too.</b></p>`
      : html`<p>It takes two people: it is called when another person has said so too.</p>`)
  return html`<p class="banner bad"><b>If the first email did go out, ${evidence.recipient} gets it twice.</b> A resend can't be taken back once it is called.</p>${who}${resendFields(evidence, onward, typed, asks && (other ? 'second' : 'first'))}`
}

const personOf = (actor: string) => actor.replace(/^person:/, '')

async function formPage(
  title: string,
  evidence: SendEvidence,
  visit: Visit,
  typed: Typed,
  form: FormOf,
  status = 200,
): Promise<Page> {
  const { dedupe_key: key } = evidence
  const isOpen = evidence.status === 'needs_review'
  const may = mayDecide(visit) ? await form(evidence, typed) : html`<p class="muted">Deciding needs role operator.</p>`
  return {
    title,
    place: 'review',
    status,
    main: html`<h1>${title.replace('Error: not saved', 'Not saved')} <span class="key">${key}</span></h1>${errorSummary(typed.problems ?? [])}
${isOpen ? html`<h2>What is known</h2>${evidencePart(evidence, visit)}${may}` : html`<p>It is “${sendLabels[evidence.status].word}”: there is nothing to decide. <a href="${sendPath(key)}">Its story</a></p>`}
<p><a href="${deskPath({ key })}">Back to the desk</a></p>`,
  }
}

type NotSaved = Exclude<Decided['outcome'] | Attached['outcome'], 'decided' | 'attached'>

const reasonsAgainst: Record<Exclude<NotSaved, 'not_found' | 'stale' | 'not_allowed'>, string> = {
  message_taken: 'Its message belongs to another call, is told of another recipient, or no call of this send can have it.',
  asked: SECOND_PERSON,
  no_person: `You are no operator any more: ${SECOND_PERSON}.`,
  second_person_needed: `You have asked for it already: ${SECOND_PERSON}.`,
  report_taken: 'The report belongs to a send already.',
  report_not_found: 'There is no such report.',
  other_mailbox: 'The report names another address. If it is of this send all the same, say so in the form of the report.',
  no_call: 'No call of this send may have sent anything.',
}

/** Nothing was applied: what has changed meanwhile, or what stands against it, with the reason still in its field. */
async function notSaved(
  deps: ScreenDeps,
  key: string,
  outcome: NotSaved,
  { version, reason }: { version: number; reason: string },
  visit: Visit,
): Promise<Page> {
  const mask = maskFor(visit.session.person.role, deps.config())
  // Of the pool that has decided, so that it isn't older than what it said.
  const send = mask.apply(outcome === 'not_found' ? undefined : await findSend(deps.pool, key, deps.sendsPerMinute))
  if (!send) return noSend
  const { view } = visit
  const isChanged = outcome === 'stale' || outcome === 'not_allowed'
  const evidence = send.status === 'needs_review' ? mask.apply(await findEvidence(deps.pool, key, view.now)) : undefined
  const decideAgain: Part = evidence
    ? html`${evidencePart(evidence, visit)}${decisionForms(evidence, {}, visit, { reason })}`
    : canBeReopened(send.status)
      ? reopenForm(send, visit, reason)
      : html`<p>As it is now, there is nothing to decide. Your reason was: “${reason}”.</p>`
  return {
    title: isChanged ? 'Error: changed meanwhile' : 'Error: not saved',
    place: 'review',
    status: 409,
    main: html`<h1>${isChanged ? 'It changed while you had this open' : 'That was not saved'}</h1>
<p><span class="mono">${key}</span>. <b>Your decision was not saved.</b> ${isChanged ? lastChange(send.settlements.at(-1), view) : reasonsAgainst[outcome as keyof typeof reasonsAgainst]}</p>
<p class="answer">${answerSentence(send, view.settings.timeZone)}</p>
${
  isChanged &&
  table({
    caption: 'Before and after',
    head: [html`<span class="hidden">What</span>`, 'When you opened it', 'Now'],
    rows: [
      html`<tr><th scope="row">Status</th><td>${sendTag('needs_review')}</td><td>${sendTag(send.status)}</td></tr>`,
      html`<tr><th scope="row">Version</th><td>${version}</td><td>${send.version}</td></tr>`,
    ],
  })
}<div class="actions"><a class="button" href="${deskPath({})}">Keep this</a></div><h2>Decide again</h2>${decideAgain}`,
  }
}

function lastChange(
  settlement: { at: Date; grade: string; event: string | null; actor: string; to_state: string } | undefined,
  view: Visit['view'],
): Part {
  if (!settlement) return 'It was changed by somebody else.'
  const { at, grade, event, actor, to_state } = settlement
  const isPerson = /^(person|token):/.test(actor)
  const who = isPerson ? actor.replace(/^(person:)+/, '') : event === null ? 'a late answer' : 'a delivery report'
  return html`While you had this open: ${view.exactTime(at)} ${who} settled it as <i>${to_state.replaceAll('_', ' ')}</i>${!isPerson && ` (grade ${grade})`}.`
}
