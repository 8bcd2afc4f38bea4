import { defineConfig, env, key } from 'oncehook'

// GoCardless names the objects of an event by links, and says nothing of the customer. Put the address into the metadata of what
// you create there, as `email`: its events carry it as resource_metadata.
export default defineConfig({
  sources: {
    gocardless: { provider: 'gocardless', secrets: env.list('GOCARDLESS_WEBHOOK_SECRETS') },
    inboxili: { provider: 'inboxili', secrets: env.list('INBOXILI_WEBHOOK_SECRETS') },
  },
  followUps: [
    {
      name: 'receipt',
      source: 'gocardless',
      type: 'payments.confirmed',
      email: ({ links, resource_metadata }) => ({
        key: key('payment', links.payment, 'confirmed'),
        to: resource_metadata.email,
        from_email: 'billing@example.com',
        subject: 'We received your payment',
        html_body: '<p>Thank you, your direct debit is confirmed.</p>',
      }),
    },
    {
      name: 'payment failed',
      source: 'gocardless',
      type: 'payments.failed',
      // A payment that is tried again can fail again, which is another email: the reason's own time tells them apart.
      email: ({ links, created_at, resource_metadata }) => ({
        key: key('payment', links.payment, 'failed', created_at),
        to: resource_metadata.email,
        from_email: 'billing@example.com',
        subject: 'Your payment did not go through',
        html_body: '<p>Your bank did not honour our direct debit. We will be in touch.</p>',
      }),
    },
    {
      name: 'refund',
      source: 'gocardless',
      type: 'refunds.paid',
      email: ({ links, resource_metadata }) => ({
        key: key('refund', links.refund, 'paid'),
        to: resource_metadata.email,
        from_email: 'billing@example.com',
        subject: 'Your refund is on its way',
        html_body: '<p>We have refunded your payment.</p>',
      }),
    },
    {
      name: 'subscription ended',
      source: 'gocardless',
      type: ['subscriptions.cancelled', 'subscriptions.finished'],
      email: ({ links, resource_metadata }) => ({
        key: key('subscription', links.subscription, 'ended'),
        to: resource_metadata.email,
        from_email: 'billing@example.com',
        subject: 'Your subscription has ended',
        html_body: '<p>We are sorry to see you go.</p>',
      }),
    },
    {
      name: 'payout',
      source: 'gocardless',
      type: 'payouts.paid',
      email: ({ links }) => ({
        key: key('payout', links.payout, 'paid'),
        to: 'accounting@example.com',
        from_email: 'billing@example.com',
        subject: `GoCardless has paid out ${links.payout}`,
        html_body: '<p>The money is on its way to our account.</p>',
      }),
    },
  ],
})
