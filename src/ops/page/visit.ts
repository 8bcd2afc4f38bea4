import type { Request, RequestHandler, Response } from 'express'
import { z } from 'zod'
import type { Session } from '../sessions.ts'
import { type View, viewOf } from './view.ts'

/** One request of a signed-in person. */
export interface Visit {
  session: Session
  view: View
  requestId: string
  /** The path and query that were asked for, without the ID of a form that has just been answered. */
  address: string
  /** The ID of the form whose answer this page is to show. */
  done: string | undefined
}

/** The visit that was let in; locals are untyped. */
export const visitOf = (res: Response) => res.locals.visit as Visit

/** Whom changes are audited under. */
export const actorOf = ({ session }: Visit) => `person:${session.person.name}`

/** Whether the person may decide, pause and manage, not only look. */
export const mayDecide = ({ session }: Visit) => session.person.role === 'operator'

/** The visit of a session at this moment. */
export function visitFor(req: Request, res: Response, session: Session, now: Date): Visit {
  const url = new URL(req.originalUrl, 'http://page')
  const done = z.uuid().safeParse(url.searchParams.get('done')).data
  url.searchParams.delete('done')
  return {
    session,
    view: viewOf(session.person.settings, now),
    requestId: String(res.locals.requestId ?? ''),
    address: url.pathname + url.search,
    done,
  }
}

/**
 * Refuses what another site has sent: a change must be asked for by a page of ours. Browsers say so in Sec-Fetch-Site, older ones
 * in Origin; who says neither is no browser, and the API is for programs.
 */
export function sameOrigin(publicUrl: string | undefined, refuse: RequestHandler): RequestHandler {
  const known = publicUrl === undefined ? undefined : new URL(publicUrl).origin
  return (req, res, next) => {
    const site = req.get('sec-fetch-site')
    const origin = req.get('origin')
    const isOurs = origin !== undefined && (origin === `${req.protocol}://${req.get('host')}` || origin === known)
    if (site === undefined ? isOurs : site === 'same-origin') return next()
    refuse(req, res, next)
  }
}
