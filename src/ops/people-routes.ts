import type pg from 'pg'
import { z } from 'zod'
import { changedSchema, personPageSchema, personRowSchema, signInLinkSchema } from './account-schemas.ts'
import { reasonSchema } from './decide-send.ts'
import { rowFilter, rowIdSchema } from './filters.ts'
import { createPerson, listPeople, newPersonSchema, personRoles } from './people.ts'
import { disablePerson, enablePerson, type PersonChange, setRole } from './person-changes.ts'
import { type Route, refuse, reply, route } from './route.ts'
import { createSignInLink, signInPath } from './sign-in-links.ts'

const MAX_BODY_BYTES = 20_000
const LINK_MINUTES = 15
const tag = 'People'
const params = z.strictObject({ id: rowIdSchema })
const missing = 'no person has this id'
const withReason = z.strictObject({ reason: reasonSchema }).meta({ id: 'WithReason', example: { reason: 'has left' } })
const newRole = z
  .strictObject({ role: z.enum(personRoles), reason: reasonSchema })
  .meta({ id: 'NewRole', example: { role: 'reader', reason: 'on leave' } })

/** The people who sign in on the page. */
export function peopleRoutes({ pool, reads }: { pool: pg.Pool; reads: pg.Pool }): Route[] {
  const answerTo = (outcome: PersonChange) => {
    if (outcome === 'not_found') return undefined
    return outcome === 'last_operator'
      ? refuse(409, 'last_operator', 'nobody could manage people any more')
      : reply(200, { outcome })
  }
  const change = (id: string, path: `/v1/${string}`, summary: string, apply: typeof disablePerson) =>
    route({
      id,
      method: 'post',
      path,
      tag,
      summary,
      description: 'Audited.',
      roles: ['operator'],
      params,
      missing,
      body: { schema: withReason, limit: MAX_BODY_BYTES },
      answers: { 200: { description: 'What came of it', schema: changedSchema } },
      problems: { 409: ['last_operator'] },
      handle: async ({ params, body: { reason }, actor }) =>
        answerTo(await apply(pool, params.id, { actor, via: 'api', reason })),
    })

  return [
    route({
      id: 'listPeople',
      method: 'get',
      path: '/v1/people',
      tag,
      summary: 'List people, the first one first',
      roles: ['operator'],
      query: rowFilter,
      answers: { 200: { description: 'One page', schema: personPageSchema } },
      handle: async ({ query }) => reply(200, await listPeople(reads, query)),
    }),
    route({
      id: 'createPerson',
      method: 'post',
      path: '/v1/people',
      tag,
      summary: 'Add a person',
      description: 'They sign in by a one-time link, and may set a password then. Audited.',
      roles: ['operator'],
      body: {
        schema: newPersonSchema.meta({ id: 'NewPerson', example: { name: 'mia', role: 'operator' } }),
        limit: MAX_BODY_BYTES,
      },
      answers: { 201: { description: 'The person', schema: personRowSchema } },
      problems: { 409: ['name_taken'] },
      async handle({ body, actor }) {
        const person = await createPerson(pool, body, { actor, via: 'api' })
        return person ? reply(201, person) : refuse(409, 'name_taken', 'somebody has this name')
      },
    }),
    route({
      id: 'createSignInLink',
      method: 'post',
      path: '/v1/people/:id/link',
      tag,
      summary: 'Make a link that signs a person in, once',
      description: 'Audited.',
      roles: ['operator'],
      params,
      missing: 'no person who may sign in has this id',
      answers: { 201: { description: 'The link', schema: signInLinkSchema } },
      async handle({ params: { id }, actor }) {
        const code = await createSignInLink(pool, { person: id, minutes: LINK_MINUTES }, { actor, via: 'api' })
        return code === undefined ? undefined : reply(201, { path: signInPath(code), minutes: LINK_MINUTES })
      },
    }),
    change('disablePerson', '/v1/people/:id/disable', 'Let a person in no more, at once', disablePerson),
    change('enablePerson', '/v1/people/:id/enable', 'Let a disabled person sign in again', enablePerson),
    route({
      id: 'setRole',
      method: 'post',
      path: '/v1/people/:id/role',
      tag,
      summary: 'Give a person another role, with their next request',
      description: 'Audited.',
      roles: ['operator'],
      params,
      missing,
      body: { schema: newRole, limit: MAX_BODY_BYTES },
      answers: { 200: { description: 'What came of it', schema: changedSchema } },
      problems: { 409: ['last_operator'] },
      async handle({ params: { id }, body: { role, reason }, actor }) {
        return answerTo(await setRole(pool, id, role, { actor, via: 'api', reason }))
      },
    }),
  ]
}
