import type pg from 'pg'
import { z } from 'zod'
import { changedSchema, newTokenSchema, tokenPageSchema } from './account-schemas.ts'
import { reasonSchema } from './decide-send.ts'
import { rowFilter, rowIdSchema } from './filters.ts'
import { type Route, reply, route } from './route.ts'
import { issueToken, listTokens, revokeToken, roles, tokenLifetime, tokenName } from './tokens.ts'

const MAX_BODY_BYTES = 20_000
const tag = 'Tokens'

/** The tokens of the API. */
export function tokenRoutes({ pool, reads, now }: { pool: pg.Pool; reads: pg.Pool; now: () => Date }): Route[] {
  const newToken = z
    .strictObject({ name: tokenName, role: z.enum(roles), expires_in: tokenLifetime(now).optional() })
    .meta({ id: 'NewToken', example: { name: 'shop', role: 'sender', expires_in: '90d' } })
  return [
    route({
      id: 'listTokens',
      method: 'get',
      path: '/v1/tokens',
      tag,
      summary: 'List tokens, newest first',
      description: 'Never a token itself.',
      roles: ['operator'],
      query: rowFilter,
      answers: { 200: { description: 'One page', schema: tokenPageSchema } },
      handle: async ({ query }) => reply(200, await listTokens(reads, query)),
    }),
    route({
      id: 'createToken',
      method: 'post',
      path: '/v1/tokens',
      tag,
      summary: 'Make a token',
      description: 'Its text is in this answer and nowhere else: only its hash is kept. Audited.',
      roles: ['operator'],
      body: { schema: newToken, limit: MAX_BODY_BYTES },
      answers: { 201: { description: 'The token', schema: newTokenSchema } },
      async handle({ body: { name, role, expires_in }, actor }) {
        return reply(201, await issueToken(pool, { name, role, expiresAt: expires_in, actor, via: 'api' }))
      },
    }),
    route({
      id: 'revokeToken',
      method: 'post',
      path: '/v1/tokens/:id/revoke',
      tag,
      summary: 'End a token, at once and for good',
      description: 'Audited.',
      roles: ['operator'],
      params: z.strictObject({ id: rowIdSchema }),
      missing: 'no token has this id',
      body: {
        schema: z.strictObject({ reason: reasonSchema }).meta({ id: 'Revocation', example: { reason: 'Mia has left' } }),
        limit: MAX_BODY_BYTES,
      },
      answers: { 200: { description: 'What came of it', schema: changedSchema } },
      async handle({ params: { id }, body: { reason }, actor }) {
        const outcome = await revokeToken(pool, id, { actor, via: 'api', reason })
        return outcome === 'not_found' ? undefined : reply(200, { outcome })
      },
    }),
  ]
}
