import type pg from 'pg'
import { z } from 'zod'
import { verdicts } from '../sends/suggest.ts'
import { findPlan, MOST_IN_A_PLAN, planDecisions, runPlan } from './bulk-decisions.ts'
import { type DecideDeps, reasonSchema, SECOND_PERSON } from './decide-send.ts'
import { findEvidence } from './evidence.ts'
import { givenKey, sendKey } from './filters.ts'
import { listReview, reviewFilter } from './review-queries.ts'
import { decisionPlanSchema, evidenceSchema, reviewPageSchema } from './review-schemas.ts'
import { type Route, refuse, reply, route } from './route.ts'

export interface ReviewRouteDeps extends DecideDeps {
  reads: pg.Pool
}

const MAX_BODY_BYTES = 500_000
const tag = 'Decisions'
const planId = z.uuid().meta({ example: '0b7f7f4e-9e5c-4a43-8a53-3f0a8e6f4e0d' })

const planning = {
  dry_run: z.literal(true).meta({ description: 'A plan decides nothing; carry it out by `plan`' }),
  decision: z.enum(['sent', 'abandoned', 'retry']),
  reason: reasonSchema,
}
const bulkRequest = z
  .union([
    z.strictObject({
      plan: planId,
      confirm: z.int().min(0).optional().meta({ description: 'How many it will change; needed from 11 on' }),
    }),
    z.strictObject({
      ...planning,
      sends: z
        .array(z.strictObject({ key: givenKey, version: z.int().min(1).optional() }))
        .min(1)
        .max(MOST_IN_A_PLAN)
        .refine((sends) => new Set(sends.map(({ key }) => key)).size === sends.length, 'has a key twice'),
    }),
    z.strictObject({ ...planning, filter: z.strictObject({ suggestion: z.enum(verdicts).optional() }) }),
  ])
  .meta({
    id: 'BulkResolution',
    example: { dry_run: true, decision: 'sent', reason: 'all in the dashboard', filter: { suggestion: 'sent' } },
  })

/** What needs a decision, what speaks for one, and decisions about many sends. */
export function reviewRoutes(deps: ReviewRouteDeps): Route[] {
  const { reads } = deps
  return [
    route({
      id: 'listReview',
      method: 'get',
      path: '/v1/review',
      tag,
      summary: 'List the sends that need a decision, oldest first',
      roles: ['reader', 'operator'],
      query: reviewFilter,
      answers: { 200: { description: 'One page', schema: reviewPageSchema } },
      handle: async ({ query }) => reply(200, await listReview(reads, query)),
    }),
    route({
      id: 'findEvidence',
      method: 'get',
      path: '/v1/sends/:key/evidence',
      tag,
      summary: 'What is known of whether a send was sent, and what that suggests',
      roles: ['reader', 'operator'],
      params: z.strictObject({ key: sendKey }),
      missing: 'no send has this key',
      answers: { 200: { description: 'The evidence', schema: evidenceSchema } },
      async handle({ params }) {
        const evidence = await findEvidence(reads, params.key)
        return evidence && reply(200, evidence)
      },
    }),
    route({
      id: 'resolveSends',
      method: 'post',
      path: '/v1/resolve',
      tag,
      summary: 'Plan one decision for many sends, or carry a plan out',
      description:
        'With `dry_run` it says what would change, and keeps exactly these sends and versions as a plan for 10 minutes. `plan` carries it out, once: what has changed meanwhile is left alone. `retry` takes only sends that a whole sending log lacks. Each decision is audited as a single one is.',
      roles: ['operator'],
      body: { schema: bulkRequest, limit: MAX_BODY_BYTES },
      missing: 'there is no such plan, or it has expired',
      answers: { 200: { description: 'The plan, as it stands', schema: decisionPlanSchema } },
      problems: { 409: ['unconfirmed', 'second_person_needed'] },
      async handle({ body, actor }) {
        if (!('plan' in body)) {
          const plan = await planDecisions(deps, body, actor)
          return reply(200, { plan: plan.id, ...plan })
        }
        const run = await runPlan(deps, body.plan, { actor, via: 'api', confirm: body.confirm })
        if (run.outcome === 'not_found') return undefined
        if (run.outcome === 'second_person_needed') return refuse(409, 'second_person_needed', SECOND_PERSON)
        return run.outcome === 'done'
          ? reply(200, { plan: run.plan.id, ...run.plan })
          : refuse(409, 'unconfirmed', 'say by `confirm` how many sends it will change', { will_change: run.will_change })
      },
    }),
    route({
      id: 'findPlan',
      method: 'get',
      path: '/v1/resolve/:id',
      tag,
      summary: 'One plan of many decisions, as it stands',
      roles: ['reader', 'operator'],
      params: z.strictObject({ id: planId }),
      missing: 'no plan has this id',
      answers: { 200: { description: 'The plan', schema: decisionPlanSchema } },
      async handle({ params: { id } }) {
        const plan = await findPlan(reads, id)
        return plan && reply(200, { plan: plan.id, ...plan })
      },
    }),
  ]
}
