import { z } from 'zod'
import { personRoles } from './people.ts'
import { roles } from './tokens.ts'
import { viewScreens } from './views.ts'
import { instant, nothingOrInstant, nothingOrText, pageOf, rowId } from './wire.ts'

// What the API says of tokens, people, their views, and of what they have changed.

const tokenRowSchema = z
  .strictObject({
    id: rowId,
    name: z.string(),
    role: z.enum(roles),
    created_at: instant,
    created_by: nothingOrText,
    expires_at: nothingOrInstant,
    last_used_at: nothingOrInstant.meta({ description: 'To the minute' }),
    revoked_at: nothingOrInstant,
    revoked_by: nothingOrText,
    revoked_reason: nothingOrText,
  })
  .meta({ id: 'TokenRow' })

export const newTokenSchema = tokenRowSchema
  .extend({ token: z.string().meta({ description: 'The token itself; it is never told again' }) })
  .meta({ id: 'IssuedToken' })

export const tokenPageSchema = pageOf('tokens', tokenRowSchema).meta({ id: 'TokenPage' })

export const personRowSchema = z
  .strictObject({
    id: rowId,
    name: z.string(),
    role: z.enum(personRoles),
    has_password: z.boolean(),
    created_at: instant,
    disabled_at: nothingOrInstant,
    last_signed_in_at: nothingOrInstant,
  })
  .meta({ id: 'Person' })

export const personPageSchema = pageOf('people', personRowSchema).meta({ id: 'PersonPage' })

export const signInLinkSchema = z
  .strictObject({
    path: z.string().meta({ description: 'Signs the person in, once; never told again', example: '/ops/sign-in?code=…' }),
    minutes: z.int().meta({ description: 'How long it can be used' }),
  })
  .meta({ id: 'SignInLink' })

export const changedSchema = z
  .strictObject({ outcome: z.enum(['done', 'unchanged']) })
  .meta({ id: 'Changed', description: '`unchanged`: it was so already' })

export const viewSchema = z
  .strictObject({
    id: rowId,
    screen: z.enum(viewScreens),
    name: z.string(),
    query: z.string().meta({ description: "The list's query string, without its question mark" }),
    created_at: instant,
    created_by: z.string(),
  })
  .meta({ id: 'View' })

export const viewPageSchema = pageOf('views', viewSchema).meta({ id: 'ViewPage' })

export const auditRowSchema = z
  .strictObject({
    id: rowId,
    at: instant,
    actor: z.string(),
    via: z.string().meta({ description: '`page`, `api`, `cli`, or `oncehook` for what happened by itself' }),
    action: z.string(),
    subject: z.string(),
    reason: nothingOrText,
    before: z.unknown(),
    after: z.unknown(),
  })
  .meta({ id: 'AuditRow' })

export const auditPageSchema = pageOf('audit', auditRowSchema).meta({ id: 'AuditPage' })
