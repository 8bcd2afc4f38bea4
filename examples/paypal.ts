import { defineConfig, env, key } from 'oncehook'

// The secrets of a PayPal source are its webhook IDs: they are what binds a signature to this address. A capture has the payer's
// address in some API versions only; where it is missing, look the order up by its ID.
export default defineConfig({
  sources: {
    paypal: { provider: 'paypal', secrets: env.list('PAYPAL_WEBHOOK_SECRETS') },
    inboxili: { provider: 'inboxili', secrets: env.list('INBOXILI_WEBHOOK_SECRETS') },
  },
  followUps: [
    {
      name: 'receipt',
      source: 'paypal',
      type: 'PAYMENT.CAPTURE.COMPLETED',
      email: ({ resource }) =>
        resource.payer?.email_address && {
          key: key('capture', resource.id, 'completed'),
          to: resource.payer?.email_address,
          from_email: 'billing@example.com',
          subject: 'We received your payment',
          html_body: '<p>Thank you, we received your payment.</p>',
        },
    },
    {
      name: 'payment failed',
      source: 'paypal',
      type: 'PAYMENT.CAPTURE.DENIED',
      email: ({ resource }) =>
        resource.payer?.email_address && {
          key: key('capture', resource.id, 'denied'),
          to: resource.payer?.email_address,
          from_email: 'billing@example.com',
          subject: 'Your payment did not go through',
          html_body: '<p>Your payment did not go through. Please try another way to pay.</p>',
        },
    },
    {
      name: 'refund',
      source: 'paypal',
      type: 'PAYMENT.CAPTURE.REFUNDED',
      // Here the resource is the refund.
      email: ({ resource }) =>
        resource.payer?.email_address && {
          key: key('refund', resource.id, 'done'),
          to: resource.payer?.email_address,
          from_email: 'billing@example.com',
          subject: 'Your refund is on its way',
          html_body: '<p>We have refunded your payment.</p>',
        },
    },
    {
      name: 'subscription ended',
      source: 'paypal',
      type: 'BILLING.SUBSCRIPTION.CANCELLED',
      email: ({ resource }) =>
        resource.subscriber?.email_address && {
          key: key('subscription', resource.id, 'ended'),
          to: resource.subscriber?.email_address,
          from_email: 'billing@example.com',
          subject: 'Your subscription has ended',
          html_body: '<p>We are sorry to see you go.</p>',
        },
    },
    {
      name: 'payout',
      source: 'paypal',
      type: 'PAYMENT.PAYOUTSBATCH.SUCCESS',
      email: ({ resource }) => ({
        key: key('payout', resource.batch_header?.payout_batch_id ?? resource.id, 'done'),
        to: 'accounting@example.com',
        from_email: 'billing@example.com',
        subject: 'PayPal has sent a batch of payouts',
        html_body: '<p>All payouts of the batch are done.</p>',
      }),
    },
  ],
})
